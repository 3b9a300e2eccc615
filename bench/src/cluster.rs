//! The PostgreSQL cluster that all systems are measured on, and its statistics.

use std::path::Path;

use anyhow::{Context, Result};
use postrider_embedded::{DATABASE, Options, Postgres, ROLE};
use serde::Serialize;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

/// Durable, as in production; large enough that no checkpoint happens during a measurement.
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

/// Counters of the cluster for one database.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    wal: i64,
    commits: i64,
}

/// The cost of a measured workload.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cost {
    /// Bytes of write-ahead log.
    pub wal_bytes: i64,
    /// Committed transactions.
    pub commits: i64,
}

/// The server, for the results.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// Its settings for this benchmark.
    pub settings: Vec<(String, String)>,
    /// Cores of the machine, which server and clients share.
    pub cores: usize,
}

impl Cluster {
    /// Starts a new cluster in the cache directory; that of the last run is removed.
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

    /// Describes the server.
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

    /// Connection options of a database.
    pub fn options(&self, database: &str) -> PgConnectOptions {
        self.server.connect_options().database(database)
    }

    /// The URL of a database, for adapters.
    pub fn url(&self, database: &str) -> String {
        let from = format!("///{DATABASE}?");
        self.server
            .url()
            .replacen(&from, &format!("///{database}?"), 1)
    }

    /// Socket directory and role, for pgbench.
    pub fn address(&self) -> Result<(String, &'static str)> {
        let options = self.server.connect_options();
        let socket = options.get_socket().context("the server has no socket")?;
        Ok((socket.to_string_lossy().into_owned(), ROLE))
    }

    /// Recreates a database, from a template or empty. The names are constants, never user input.
    pub async fn create_database(&self, database: &str, template: Option<&str>) -> Result<()> {
        let template = template.unwrap_or("template0");
        self.admin_sql(format!("drop database if exists {database} with (force)"))
            .await?;
        self.admin_sql(format!("create database {database} template {template}"))
            .await?;
        // No measurement pays for dirty pages of earlier ones.
        self.admin_sql("checkpoint".to_owned()).await
    }

    /// Drops a database.
    pub async fn drop_database(&self, database: &str) -> Result<()> {
        self.admin_sql(format!("drop database if exists {database} with (force)"))
            .await
    }

    async fn admin_sql(&self, sql: String) -> Result<()> {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.admin).await?;
        Ok(())
    }

    /// Connects to a database.
    pub async fn connect(&self, database: &str) -> Result<PgConnection> {
        Ok(self.options(database).connect().await?)
    }

    /// Runs ANALYZE.
    pub async fn analyze(&self, database: &str) -> Result<()> {
        let mut connection = self.connect(database).await?;
        sqlx::query("analyze").execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    /// Reads the counters, once all clients have disconnected: a backend reports its commits when it ends.
    pub async fn meter(&self, database: &str) -> Result<Meter> {
        self.wait_for_disconnects(database).await?;
        let (wal, commits) = sqlx::query_as(
            "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, xact_commit
             from pg_stat_database where datname = $1",
        )
        .bind(database)
        .fetch_one(&self.admin)
        .await?;
        Ok(Meter { wal, commits })
    }

    /// The cost since `before`.
    pub async fn since(&self, database: &str, before: Meter) -> Result<Cost> {
        let now = self.meter(database).await?;
        Ok(Cost {
            wal_bytes: now.wal - before.wal,
            commits: now.commits - before.commits,
        })
    }

    /// Dead row versions that vacuum has not removed yet.
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

    async fn wait_for_disconnects(&self, database: &str) -> Result<()> {
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
            "connections to {database} are still open five seconds after their clients ended"
        )
    }

    /// Stops the server.
    pub async fn stop(self) -> Result<()> {
        self.admin.close().await;
        Ok(self.server.stop().await?)
    }
}
