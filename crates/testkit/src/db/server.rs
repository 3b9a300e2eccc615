//! The server of a test process, and the janitor that drops databases of finished tests.
//!
//! Each test's runtime ends with the test, so the server and the janitor run on threads of their
//! own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_embedded::Postgres;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::sync::{OnceCell, mpsc};

use super::cluster;
use crate::wait::within;

/// URL of a server to use instead of a private one.
const VARIABLE: &str = "POSTRIDER_TEST_DATABASE_URL";
/// Prefix of test database names; followed by the run's id and a number.
const PREFIX: &str = "postrider_test_";
/// "The source database is being accessed by other users": a connection is just closing.
const OBJECT_IN_USE: &str = "55006";

static SERVER: OnceCell<Server> = OnceCell::const_new();

/// The server of this process, started at the first call.
pub(super) async fn server() -> &'static Server {
    SERVER.get_or_init(Server::start).await
}

#[derive(Debug)]
pub(super) struct Server {
    options: PgConnectOptions,
    run: u64,
    counter: AtomicU64,
    discarded: mpsc::UnboundedSender<String>,
    /// Keeps the private server alive as long as the process.
    _private: Option<Postgres>,
}

impl Server {
    async fn start() -> Self {
        // 64 random bits: unique among the runs on one server.
        let run = uuid::Uuid::new_v4().as_u64_pair().0;
        let (options, private) = match std::env::var(VARIABLE) {
            Ok(url) => {
                let options = url.parse().expect("POSTRIDER_TEST_DATABASE_URL is a URL");
                (options, None)
            }
            Err(_) => {
                let postgres = cluster::start().await;
                let options = postgres.connect_options().database("postgres");
                (options, Some(postgres))
            }
        };
        let (discarded, inbox) = mpsc::unbounded_channel();
        let janitor = Janitor {
            options: options.clone(),
            run,
            shared: private.is_none(),
        };
        std::thread::Builder::new()
            .name("testkit-janitor".to_owned())
            .spawn(move || janitor.work(inbox))
            .expect("start the janitor's thread");
        Self {
            options,
            run,
            counter: AtomicU64::new(0),
            discarded,
            _private: private,
        }
    }

    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// A unique database name.
    pub(super) fn new_name(&self) -> String {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        format!("{PREFIX}{:016x}_{number}", self.run)
    }

    /// Creates a database as a copy of another one.
    pub(super) async fn copy(&self, template: &str, name: &str) {
        // FILE_COPY is several times faster than the default WAL_LOG.
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY");
        within(
            crate::wait::DEADLINE,
            "the template is free to be copied",
            async || match self.admin(&sql).await {
                Ok(()) => Ok(()),
                Err(sqlx::Error::Database(error))
                    if error.code().as_deref() == Some(OBJECT_IN_USE) =>
                {
                    Err(error.to_string())
                }
                Err(error) => panic!("{sql}: {error}"),
            },
        )
        .await;
    }

    /// Forbids connections to a finished template: one would block the next copy.
    pub(super) async fn seal(&self, name: &str) {
        let sql = format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false");
        self.admin(&sql).await.expect("close the template");
    }

    /// Has the janitor drop a database.
    pub(super) fn discard(&self, name: String) {
        // Without a janitor, the next run drops the databases of this one.
        let _ = self.discarded.send(name);
    }

    async fn admin(&self, sql: &str) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        // All names come from `new_name`.
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut connection)
            .await?;
        connection.close().await
    }
}

struct Janitor {
    options: PgConnectOptions,
    run: u64,
    /// The server outlives this process, so its databases must be dropped.
    shared: bool,
}

impl Janitor {
    fn work(self, mut inbox: mpsc::UnboundedReceiver<String>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime for the janitor");
        runtime.block_on(async {
            if !self.shared {
                cluster::sweep().await;
            }
            let Ok(mut connection) = PgConnection::connect_with(&self.options).await else {
                return;
            };
            if self.shared
                && let Err(error) = self.sweep(&mut connection).await
            {
                eprintln!("could not drop the databases of earlier test runs: {error}");
            }
            while let Some(name) = inbox.recv().await {
                // A test may have killed this connection or the server.
                if drop_database(&mut connection, &name).await.is_err()
                    && let Ok(fresh) = PgConnection::connect_with(&self.options).await
                {
                    connection = fresh;
                    let _ = drop_database(&mut connection, &name).await;
                }
            }
        });
    }

    /// Drops databases of dead runs on a shared server. A live run holds the advisory lock of its id.
    async fn sweep(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query("SELECT pg_advisory_lock($1)")
            .bind(self.run.cast_signed())
            .execute(&mut *connection)
            .await?;
        let rows = sqlx::query(
            "SELECT datname::text FROM pg_database WHERE starts_with(datname::text, $1)",
        )
        .bind(PREFIX)
        .fetch_all(&mut *connection)
        .await?;
        let mut runs = BTreeMap::<u64, Vec<String>>::new();
        for row in rows {
            let name: String = row.get(0);
            if let Some(run) = run_of(&name)
                && run != self.run
            {
                runs.entry(run).or_default().push(name);
            }
        }
        for (run, names) in runs {
            let lock = sqlx::query("SELECT pg_try_advisory_lock($1)")
                .bind(run.cast_signed())
                .fetch_one(&mut *connection)
                .await?;
            if lock.get::<bool, _>(0) {
                for name in names {
                    drop_database(connection, &name).await?;
                }
                sqlx::query("SELECT pg_advisory_unlock($1)")
                    .bind(run.cast_signed())
                    .execute(&mut *connection)
                    .await?;
            }
        }
        Ok(())
    }
}

/// Run id in `postrider_test_<16 hex digits>_<number>`; other databases are never dropped.
fn run_of(name: &str) -> Option<u64> {
    let (run, number) = name.strip_prefix(PREFIX)?.split_once('_')?;
    number.parse::<u64>().ok()?;
    u64::from_str_radix(run, 16).ok()
}

async fn drop_database(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::run_of;

    #[test]
    fn only_names_that_the_kit_made_are_its_to_drop() {
        assert_eq!(run_of("postrider_test_00000000000000ff_7"), Some(255));
        assert_eq!(run_of("postrider_test_accounts"), None);
        assert_eq!(run_of("postrider_test_00ff_x; DROP"), None);
        assert_eq!(run_of("production"), None);
    }
}
