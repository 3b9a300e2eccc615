//! The one PostgreSQL that everybody is measured on, and what it says about its own work.

use std::path::Path;

use anyhow::{Context, Result};
use postrider_embedded::{DATABASE, Options, Postgres, ROLE};
use serde::Serialize;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

/// Durable, as in production; large enough that no checkpoint falls into a measurement.
const SETTINGS: [(&str, &str); 12] = [
    ("shared_buffers", "1GB"),
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("wal_compression", "off"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "on"),
    ("jit", "off"),
    ("max_connections", "400"),
    ("effective_cache_size", "4GB"),
    ("track_activities", "on"),
];

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    server: Postgres,
    admin: PgPool,
}

/// What the cluster has done so far for one database.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    wal: i64,
    commits: i64,
}

/// The cost of one piece of work.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cost {
    /// Bytes of write-ahead log.
    pub wal_bytes: i64,
    /// Committed transactions.
    pub commits: i64,
}

/// What the results say about the server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// The settings that differ from its defaults for this benchmark.
    pub settings: Vec<(String, String)>,
    /// Cores of the machine that server and clients share.
    pub cores: usize,
}

impl Cluster {
    /// Starts a cluster of its own below the cache directory; the last run's is thrown away.
    pub async fn start(cache: &Path) -> Result<Self> {
        let data = cache.join("cluster");
        if data.exists() {
            postrider_embedded::remove(&data).await?;
        }
        let mut options = Options::new(&data);
        for (name, value) in SETTINGS {
            options = options.setting(name, value);
        }
        let server = Postgres::start(options).await?;
        let admin = PgPoolOptions::new()
            .max_connections(2)
            .connect_with(server.connect_options())
            .await?;
        Ok(Self { server, admin })
    }

    /// What to print about it.
    pub async fn describe(&self) -> Result<Server> {
        Ok(Server {
            version: self.server.version().to_owned(),
            settings: SETTINGS
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
        })
    }

    /// How to connect to one of its databases.
    pub fn options(&self, database: &str) -> PgConnectOptions {
        self.server.connect_options().database(database)
    }

    /// The same as a URL, for the adapters.
    pub fn url(&self, database: &str) -> String {
        let from = format!("///{DATABASE}?");
        self.server
            .url()
            .replacen(&from, &format!("///{database}?"), 1)
    }

    /// Socket directory and role, for pgbench.
    pub fn address(&self) -> Result<(String, &'static str)> {
        let options = self.server.connect_options();
        let socket = options
            .get_socket()
            .context("the private server has a socket")?;
        Ok((socket.to_string_lossy().into_owned(), ROLE))
    }

    /// Makes a database anew, from a template or empty. The names are ours, never a user's.
    pub async fn fresh(&self, database: &str, template: Option<&str>) -> Result<()> {
        let template = template.unwrap_or("template0");
        self.admin_sql(format!("drop database if exists {database} with (force)"))
            .await?;
        self.admin_sql(format!("create database {database} template {template}"))
            .await?;
        // So that no measurement pays for the pages that its predecessors left behind.
        self.admin_sql("checkpoint".to_owned()).await
    }

    /// Removes a database.
    pub async fn drop(&self, database: &str) -> Result<()> {
        self.admin_sql(format!("drop database if exists {database} with (force)"))
            .await
    }

    async fn admin_sql(&self, sql: String) -> Result<()> {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.admin).await?;
        Ok(())
    }

    /// A connection to one of its databases.
    pub async fn connect(&self, database: &str) -> Result<PgConnection> {
        Ok(self.options(database).connect().await?)
    }

    /// Gives the planner statistics about what was just loaded.
    pub async fn analyze(&self, database: &str) -> Result<()> {
        let mut connection = self.connect(database).await?;
        sqlx::query("analyze").execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    /// Reads the meter. A server process tells its commits when it ends, so read it when nobody
    /// is connected any more.
    pub async fn meter(&self, database: &str) -> Result<Meter> {
        self.until_alone(database).await?;
        let (wal, commits) = sqlx::query_as(
            "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, xact_commit
             from pg_stat_database where datname = $1",
        )
        .bind(database)
        .fetch_one(&self.admin)
        .await?;
        Ok(Meter { wal, commits })
    }

    /// What happened since.
    pub async fn since(&self, database: &str, before: Meter) -> Result<Cost> {
        let now = self.meter(database).await?;
        Ok(Cost {
            wal_bytes: now.wal - before.wal,
            commits: now.commits - before.commits,
        })
    }

    /// Row versions that nobody can see any more and that vacuum has not yet taken.
    pub async fn dead_tuples(&self, database: &str) -> Result<i64> {
        let mut connection = self.connect(database).await?;
        let dead = sqlx::query_scalar(
            "select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables",
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        Ok(dead)
    }

    async fn until_alone(&self, database: &str) -> Result<()> {
        for _ in 0..500 {
            let others: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity
                 where datname = $1 and backend_type = 'client backend'",
            )
            .bind(database)
            .fetch_one(&self.admin)
            .await?;
            if others == 0 {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        anyhow::bail!(
            "connections to {database} are still open five seconds after their owners ended"
        )
    }

    /// Stops the server.
    pub async fn stop(self) -> Result<()> {
        self.admin.close().await;
        Ok(self.server.stop().await?)
    }
}
