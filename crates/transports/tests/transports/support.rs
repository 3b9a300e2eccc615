//! A migrated database per test, and a private server for tests that stop it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::migrate::{MigrateError, Migrator};
use postrider::transport::{MessageId, Transport};
use postrider_embedded::{Options, Postgres};
use postrider_testkit::TestDb;
use postrider_transports::PostgresTransport;
use postrider_transports::conformance::{DeadLetter, Harness, Restartable};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool};
use tempfile::TempDir;
use tokio::sync::Mutex;

const DEAD: &str = "
select message_id, attempts::integer, error_code from postrider.delivery
where consumer_group = $1 and state = 'dead' order by id";

pub async fn migrate(connection: &mut PgConnection) -> Result<(), MigrateError> {
    Migrator::new([postrider::migrations()])
        .run(connection)
        .await
        .map(drop)
}

/// A database with Postrider's schema.
pub async fn database() -> TestDb {
    TestDb::from_template("engine", migrate).await
}

/// A pool as another process would have.
pub fn pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(5)
        .acquire_timeout(Duration::from_secs(2))
        .connect_lazy_with(options)
}

pub async fn dead_letters(pool: PgPool, group: &str) -> Vec<DeadLetter> {
    let rows: Vec<(uuid::Uuid, i32, String)> = sqlx::query_as(DEAD)
        .bind(group)
        .fetch_all(&pool)
        .await
        .unwrap();
    let letter = |(id, attempts, code): (uuid::Uuid, i32, String)| DeadLetter {
        id: MessageId::new(id),
        attempts: attempts.try_into().unwrap(),
        code,
    };
    rows.into_iter().map(letter).collect()
}

/// A database of the shared test server.
pub struct Shared {
    pub db: TestDb,
}

pub async fn shared() -> Option<Shared> {
    Some(Shared {
        db: database().await,
    })
}

impl Harness for Shared {
    fn connect(&self) -> BoxFuture<'_, Arc<dyn Transport>> {
        Box::pin(async {
            let pool = pool(self.db.connect_options());
            let transport: Arc<dyn Transport> = Arc::new(PostgresTransport::new(pool).unwrap());
            transport
        })
    }

    fn dead_letters<'a>(&'a self, group: &'a str) -> BoxFuture<'a, Vec<DeadLetter>> {
        Box::pin(dead_letters(self.db.pool(), group))
    }
}

/// A private server that can be stopped.
pub struct Private {
    dir: TempDir,
    options: PgConnectOptions,
    server: Mutex<Option<Postgres>>,
}

pub async fn private() -> Option<Private> {
    let dir = postrider_testkit::builders::data_dir();
    let server = Postgres::start(settings(&dir)).await.unwrap();
    let options = server.connect_options();
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    migrate(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    Some(Private {
        dir,
        options,
        server: Mutex::new(Some(server)),
    })
}

fn settings(dir: &TempDir) -> Options {
    Options::new(dir.path()).setting("fsync", "off")
}

impl Harness for Private {
    fn connect(&self) -> BoxFuture<'_, Arc<dyn Transport>> {
        Box::pin(async {
            let pool = pool(self.options.clone());
            let transport: Arc<dyn Transport> = Arc::new(PostgresTransport::new(pool).unwrap());
            transport
        })
    }

    fn dead_letters<'a>(&'a self, group: &'a str) -> BoxFuture<'a, Vec<DeadLetter>> {
        Box::pin(dead_letters(pool(self.options.clone()), group))
    }
}

impl Restartable for Private {
    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let server = self.server.lock().await.take().unwrap();
            server.stop().await.unwrap();
        })
    }

    fn start(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let server = Postgres::start(settings(&self.dir)).await.unwrap();
            *self.server.lock().await = Some(server);
        })
    }
}
