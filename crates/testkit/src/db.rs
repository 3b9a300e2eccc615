//! A real database for each test.
//!
//! Promise: every [`TestDb`] is a database of its own, dropped with the value. The first one in a
//! test process starts a private server; further ones take milliseconds. If
//! `POSTRIDER_TEST_DATABASE_URL` is set (a role that may create databases), that server is used
//! instead.

mod cluster;
mod server;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::OnceCell;

use server::{Server, server};

/// Maximum connections of [`TestDb::pool`].
pub const POOL_SIZE: u32 = 5;

/// Templates by name, each created once per process.
static TEMPLATES: LazyLock<Mutex<HashMap<String, Arc<OnceCell<String>>>>> =
    LazyLock::new(Mutex::default);

/// A database of its own for one test.
#[derive(Debug)]
pub struct TestDb {
    server: &'static Server,
    name: String,
    pool: OnceLock<PgPool>,
}

impl TestDb {
    /// An empty database.
    pub async fn new() -> Self {
        // The only template that is sure to have no connections.
        Self::copy_of("template0").await
    }

    /// A copy of a template that `prepare` fills, once per process and name:
    ///
    /// ```no_run
    /// # use postrider_testkit::TestDb;
    /// # async fn test() {
    /// let db = TestDb::from_template("accounts", async |connection| {
    ///     sqlx::raw_sql("CREATE TABLE account (id int PRIMARY KEY)")
    ///         .execute(connection)
    ///         .await
    ///         .map(drop)
    /// })
    /// .await;
    /// # }
    /// ```
    pub async fn from_template<E: Debug>(
        name: &str,
        prepare: impl AsyncFnOnce(&mut PgConnection) -> Result<(), E>,
    ) -> Self {
        let cell = {
            let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(templates.entry(name.to_owned()).or_default())
        };
        let template = cell
            .get_or_init(async || make_template(name, prepare).await)
            .await;
        Self::copy_of(template).await
    }

    async fn copy_of(template: &str) -> Self {
        let server = server().await;
        let name = server.new_name();
        server.copy(template, &name).await;
        Self {
            server,
            name,
            pool: OnceLock::new(),
        }
    }

    /// The database's name on its server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Connection options.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.server.options().clone().database(&self.name)
    }

    /// Connection URL, for child processes.
    pub fn url(&self) -> String {
        self.connect_options().to_url_lossy().to_string()
    }

    /// The test's pool of [`POOL_SIZE`] connections.
    pub fn pool(&self) -> PgPool {
        self.pool.get_or_init(|| self.pool_of(POOL_SIZE)).clone()
    }

    /// A new pool of this size.
    pub fn pool_of(&self, size: u32) -> PgPool {
        PgPoolOptions::new()
            .max_connections(size)
            .acquire_timeout(Duration::from_secs(30))
            .connect_lazy_with(self.connect_options())
    }

    /// A single connection.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect_with(&self.connect_options())
            .await
            .expect("connect to the test's database")
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        self.server.discard(std::mem::take(&mut self.name));
    }
}

async fn make_template<E: Debug>(
    name: &str,
    prepare: impl AsyncFnOnce(&mut PgConnection) -> Result<(), E>,
) -> String {
    let server = server().await;
    let database = server.new_name();
    server.copy("template0", &database).await;
    let options = server.options().clone().database(&database);
    let mut connection = PgConnection::connect_with(&options)
        .await
        .expect("connect to the new template");
    if let Err(error) = prepare(&mut connection).await {
        panic!("the template {name} could not be prepared: {error:?}");
    }
    connection.close().await.expect("leave the template");
    server.seal(&database).await;
    database
}
