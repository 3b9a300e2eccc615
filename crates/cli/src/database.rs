//! The database that everything stands on: the one at `database.url`, or the embedded PostgreSQL.

use std::{str::FromStr, time::Duration};

use postrider::{
    error::database_is_transient,
    migrate::{MigrateError, Migrator, Plan},
    pool,
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

/// How often a database that is not there yet is asked again.
const KNOCK: Duration = Duration::from_millis(250);

/// An open database; close it so that an embedded server ends in order.
pub struct Database {
    pool: PgPool,
    /// The wallet's, where it has one of its own.
    wallet: Option<PgPool>,
    embedded: Option<Postgres>,
}

impl Database {
    /// Connects, starting the embedded server first where no other database is named.
    pub async fn open(config: &Config) -> Result<Self, Failure> {
        let (options, embedded) = match named(config)? {
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

    /// Connects to have a look: to the embedded server that another program runs, if one does. Makes no new database.
    pub async fn visit(config: &Config) -> Result<Self, Failure> {
        if let Some(options) = named(config)? {
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
                    "there is no database in {} yet; name another with --data-dir or --database-url, or make one with `postrider serve`",
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
        // For migrations and a look alone; the wallet's parts have connections of their own.
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

    async fn wait_for_all(&self, patience: Duration) -> Result<(), Failure> {
        wait(&self.pool, "database.url", patience).await?;
        if self.embedded.is_none() {
            refuse_mixing(&self.pool, "database.url", patience).await?;
        }
        if let Some(wallet) = &self.wallet {
            let key = "payments.wallet.database_url";
            wait(wallet, key, patience).await?;
            refuse_mixing(wallet, key, patience).await?;
        }
        Ok(())
    }

    /// The connections.
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
        let mut done = Plan::default();
        for (pool, migrator) in self.schemas() {
            let mut connection = pool.acquire().await.map_err(unavailable)?;
            let plan = migrator.run(&mut connection).await.map_err(refused)?;
            add(&mut done, plan);
        }
        Ok(done)
    }

    /// What [`Self::migrate`] would do.
    pub async fn plan(&self) -> Result<Plan, Failure> {
        let mut planned = Plan::default();
        for (pool, migrator) in self.schemas() {
            let mut connection = pool.acquire().await.map_err(unavailable)?;
            let plan = migrator.plan(&mut connection).await.map_err(refused)?;
            add(&mut planned, plan);
        }
        Ok(planned)
    }

    fn schemas(&self) -> impl Iterator<Item = (&PgPool, Migrator)> {
        let wallet = self.wallet.iter().map(|pool| (pool, wallet_migrator()));
        std::iter::once((&self.pool, services::migrator())).chain(wallet)
    }

    /// Closes the connections and ends the embedded server in order.
    pub async fn close(self) {
        // A connection that somebody still holds must not keep the program from ending.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.pool.close()).await;
        if let Some(wallet) = &self.wallet {
            let _ = tokio::time::timeout(Duration::from_secs(5), wallet.close()).await;
        }
        if let Some(server) = self.embedded
            && let Err(error) = server.stop().await
        {
            tracing::warn!(%error, "the embedded PostgreSQL did not stop in order; it recovers at the next start");
        }
    }
}

/// Waits for a database to answer: it may be starting beside us. What can't get better fails at once.
async fn wait(pool: &PgPool, key: &str, patience: Duration) -> Result<(), Failure> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut told = String::new();
    loop {
        let error = match tokio::time::timeout_at(deadline, knock(pool)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
        };
        if !database_is_transient(&error) || tokio::time::Instant::now() >= deadline {
            let why = chain(&error);
            return Err(Failure::new(
                Exit::Database,
                format!(
                    "the database does not answer: {why}; check {key} and that the server runs"
                ),
            ));
        }
        let text = error.to_string();
        if text != told {
            tracing::warn!(error = text, key, "the database does not answer yet");
            told = text;
        }
        tokio::time::sleep(KNOCK).await;
    }
}

/// Without the pool, which tells of nothing but its own patience.
async fn knock(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect_with(&pool.connect_options()).await?;
    connection.ping().await?;
    connection.close().await
}

/// Behind a pooler that mixes up prepared statements one connection runs another's: better not to begin.
async fn refuse_mixing(pool: &PgPool, key: &str, patience: Duration) -> Result<(), Failure> {
    let options = pool.connect_options();
    let asked = tokio::time::timeout(patience, pool::keeps_statements_apart(&options)).await;
    // A pooler lets whoever comes too many wait without a word.
    let apart = asked.map_err(|_| {
        let text = format!("{key} has no two connections to spare; allow for more of them there");
        Failure::new(Exit::Database, text)
    })?;
    match apart.map_err(unavailable)? {
        true => Ok(()),
        false => Err(Failure::new(
            Exit::Database,
            format!(
                "{key} leads to a pooler in transaction mode that mixes up prepared statements; point it at the server itself, set the pooler's mode to session for this database, or use a pooler that knows prepared statements (PgBouncer 1.21 or later with max_prepared_statements above 0)"
            ),
        )),
    }
}

fn add(plan: &mut Plan, more: Plan) {
    plan.applied += more.applied;
    plan.pending.extend(more.pending);
}

/// The database that the configuration names, if it does.
fn named(config: &Config) -> Result<Option<PgConnectOptions>, Failure> {
    let Some(url) = &config.database.url else {
        return Ok(None);
    };
    address(url.expose(), "database.url").map(Some)
}

/// How to connect to the database that a setting names. Without `extra_float_digits`, which poolers refuse and no server of
/// the last years needs.
pub fn address(url: &str, key: &str) -> Result<PgConnectOptions, Failure> {
    PgConnectOptions::from_str(url)
        .map(|options| options.extra_float_digits(None))
        .map_err(|e| Failure::caused(Exit::Config, key, &e))
}

fn unavailable(error: sqlx::Error) -> Failure {
    Failure::caused(Exit::Database, "the database can't be used", &error)
}

fn refused(error: MigrateError) -> Failure {
    let exit = match &error {
        MigrateError::Database(_) => Exit::Database,
        _ => Exit::Schema,
    };
    Failure::new(exit, chain(&error))
}
