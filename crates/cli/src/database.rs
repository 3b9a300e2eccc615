//! The database: the one at `database.url`, or the embedded PostgreSQL.

use std::{str::FromStr, time::Duration};

use postrider::{
    internal::{database_is_transient, pool},
    migrate::{MigrateError, Migrator, Plan},
};
use postrider_embedded::{Options, Postgres, Presence};
use sqlx::{Connection, PgConnection, PgPool, postgres::PgConnectOptions};

use crate::{
    config::{Config, redact},
    exit::{Exit, Failure, chain},
    services::{
        self,
        payments::{wallet_database, wallet_migrator},
    },
};

/// Pause before an unavailable database is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// An open database; close it so that an embedded server shuts down cleanly.
pub struct Database {
    pool: PgPool,
    /// The wallet's own database, if it has one.
    wallet: Option<PgPool>,
    embedded: Option<Postgres>,
}

impl Database {
    /// Connects; starts the embedded server first if no database is configured.
    pub async fn open(config: &Config) -> Result<Self, Failure> {
        let (options, embedded) = match configured(config)? {
            Some(options) => (options, None),
            None => {
                let server = Postgres::start(Options {
                    data_dir: config.data_dir(),
                    bin_dir: config.database.bin_dir.clone(),
                    settings: Vec::new(),
                })
                .await
                .map_err(|e| Failure::new(Exit::Database, chain(&e)))?;
                tracing::info!(url = %redact(&server.url()), "embedded PostgreSQL is up");
                (server.connect_options(), Some(server))
            }
        };
        Self::connect(config, options, embedded).await
    }

    /// Connects without creating a database: to the embedded server of a running program, if there is one.
    pub async fn attach(config: &Config) -> Result<Self, Failure> {
        if let Some(options) = configured(config)? {
            return Self::connect(config, options, None).await;
        }
        let data_dir = config.data_dir();
        let found = postrider_embedded::presence(&data_dir)
            .map_err(|e| Failure::new(Exit::Database, chain(&e)))?;
        match found {
            Presence::Running(options) => Self::connect(config, *options, None).await,
            Presence::Stopped => Self::open(config).await,
            Presence::Absent => Err(Failure::new(
                Exit::Database,
                format!(
                    "there is no database in {} yet; name another with --data-dir or --database-url, or create one with `postrider serve`",
                    data_dir.display()
                ),
            )),
        }
    }

    async fn connect(
        config: &Config,
        options: PgConnectOptions,
        embedded: Option<Postgres>,
    ) -> Result<Self, Failure> {
        let pool = pool::options()
            .max_connections(config.database.pool_size)
            .acquire_timeout(config.database.acquire_timeout)
            .connect_lazy_with(options.application_name("postrider"));
        // For migrations and the doctor only; the wallet's tasks have their own connections.
        let wallet = wallet_database(config)?.map(|options| {
            pool::options()
                .max_connections(2)
                .acquire_timeout(config.database.acquire_timeout)
                .connect_lazy_with(options.application_name("postrider-wallet"))
        });
        let database = Self {
            pool,
            wallet,
            embedded,
        };
        match database.wait_for_all(config.database.connect_timeout).await {
            Ok(()) => Ok(database),
            Err(failure) => {
                database.close().await;
                Err(failure)
            }
        }
    }

    async fn wait_for_all(&self, timeout: Duration) -> Result<(), Failure> {
        wait(&self.pool, "database.url", timeout).await?;
        if self.embedded.is_none() {
            check_pooler(&self.pool, "database.url", timeout).await?;
        }
        if let Some(wallet) = &self.wallet {
            let key = "payments.wallet.database_url";
            wait(wallet, key, timeout).await?;
            check_pooler(wallet, key, timeout).await?;
        }
        Ok(())
    }

    /// The connection pool.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The embedded server, if there is one.
    pub fn embedded(&self) -> Option<&Postgres> {
        self.embedded.as_ref()
    }

    /// The wallet's own database, if it has one.
    pub fn wallet(&self) -> Option<&PgPool> {
        self.wallet.as_ref()
    }

    /// Brings every schema up to date, in every database.
    pub async fn migrate(&self) -> Result<Plan, Failure> {
        let mut applied = Plan::default();
        for (pool, migrator) in self.schemas() {
            let mut connection = pool.acquire().await.map_err(unavailable)?;
            let plan = migrator
                .run(&mut connection)
                .await
                .map_err(migration_failed)?;
            add(&mut applied, plan);
        }
        Ok(applied)
    }

    /// What [`Self::migrate`] would do.
    pub async fn plan(&self) -> Result<Plan, Failure> {
        let mut planned = Plan::default();
        for (pool, migrator) in self.schemas() {
            let mut connection = pool.acquire().await.map_err(unavailable)?;
            let plan = migrator
                .plan(&mut connection)
                .await
                .map_err(migration_failed)?;
            add(&mut planned, plan);
        }
        Ok(planned)
    }

    fn schemas(&self) -> impl Iterator<Item = (&PgPool, Migrator)> {
        let wallet = self.wallet.iter().map(|pool| (pool, wallet_migrator()));
        std::iter::once((&self.pool, services::migrator())).chain(wallet)
    }

    /// Closes the connections and stops the embedded server cleanly.
    pub async fn close(self) {
        // A connection still in use must not keep the program from exiting.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.pool.close()).await;
        if let Some(wallet) = &self.wallet {
            let _ = tokio::time::timeout(Duration::from_secs(5), wallet.close()).await;
        }
        if let Some(server) = self.embedded
            && let Err(error) = server.stop().await
        {
            tracing::warn!(%error, "the embedded PostgreSQL did not stop cleanly; it will recover at the next start");
        }
    }
}

/// Waits until the database answers: it may be starting at the same time. A permanent error fails at once.
async fn wait(pool: &PgPool, key: &str, timeout: Duration) -> Result<(), Failure> {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut logged = String::new();
    loop {
        let error = match tokio::time::timeout_at(deadline, ping(pool)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
        };
        if !database_is_transient(&error) || tokio::time::Instant::now() >= deadline {
            let cause = chain(&error);
            return Err(Failure::new(
                Exit::Database,
                format!(
                    "the database does not answer: {cause}; check {key} and that the server is running"
                ),
            ));
        }
        let text = error.to_string();
        if text != logged {
            tracing::warn!(
                error = text,
                key,
                "the database does not answer yet; retrying"
            );
            logged = text;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Without the pool, which would report only its own timeout.
async fn ping(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect_with(&pool.connect_options()).await?;
    connection.ping().await?;
    connection.close().await
}

/// Refuses a pooler that mixes up prepared statements: one connection would run another's.
async fn check_pooler(pool: &PgPool, key: &str, timeout: Duration) -> Result<(), Failure> {
    let options = pool.connect_options();
    let checked = tokio::time::timeout(timeout, pool::keeps_statements_apart(&options)).await;
    // A pooler lets clients above its limit wait without a response.
    let separate = checked.map_err(|_| {
        let text = format!("{key} has fewer than two free connections; raise the pooler's limit");
        Failure::new(Exit::Database, text)
    })?;
    match separate.map_err(unavailable)? {
        true => Ok(()),
        false => Err(Failure::new(
            Exit::Database,
            format!(
                "{key} leads to a pooler in transaction mode that mixes up prepared statements; point it at the server itself, set the pooler to session mode for this database, or use a pooler that supports prepared statements (PgBouncer 1.21 or later with max_prepared_statements above 0)"
            ),
        )),
    }
}

fn add(plan: &mut Plan, more: Plan) {
    plan.applied += more.applied;
    plan.pending.extend(more.pending);
}

/// The configured database, if there is one.
fn configured(config: &Config) -> Result<Option<PgConnectOptions>, Failure> {
    let Some(url) = &config.database.url else {
        return Ok(None);
    };
    address(url.expose(), "database.url").map(Some)
}

/// Connection options of a database URL. Without `extra_float_digits`, which poolers refuse and no current server needs.
pub fn address(url: &str, key: &str) -> Result<PgConnectOptions, Failure> {
    PgConnectOptions::from_str(url)
        .map(|options| options.extra_float_digits(None))
        .map_err(|e| Failure::caused(Exit::Config, key, &e))
}

fn unavailable(error: sqlx::Error) -> Failure {
    Failure::caused(Exit::Database, "the database is unavailable", &error)
}

fn migration_failed(error: MigrateError) -> Failure {
    let exit = match &error {
        MigrateError::Database(_) => Exit::Database,
        _ => Exit::Schema,
    };
    Failure::new(exit, chain(&error))
}
