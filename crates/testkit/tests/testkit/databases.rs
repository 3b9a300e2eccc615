use std::sync::atomic::{AtomicU32, Ordering};

use postrider_testkit::{TestDb, eventually};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

async fn accounts() -> TestDb {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let db = TestDb::from_template("accounts", async |connection| {
        MADE.fetch_add(1, Ordering::SeqCst);
        sqlx::raw_sql("CREATE TABLE account (id int PRIMARY KEY); INSERT INTO account VALUES (1)")
            .execute(connection)
            .await
            .map(drop)
    })
    .await;
    assert_eq!(
        MADE.load(Ordering::SeqCst),
        1,
        "the template was made again"
    );
    db
}

async fn count(connection: &mut PgConnection) -> i64 {
    let row = sqlx::query("SELECT count(*) FROM account")
        .fetch_one(connection)
        .await
        .unwrap();
    row.get(0)
}

#[tokio::test]
async fn a_new_database_is_empty() {
    let db = TestDb::new().await;
    let row =
        sqlx::query("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'")
            .fetch_one(&db.pool())
            .await
            .unwrap();
    assert_eq!(row.get::<i64, _>(0), 0);
}

#[tokio::test]
async fn copies_of_a_template_do_not_see_each_other() {
    let (one, other) = tokio::join!(accounts(), accounts());
    sqlx::query("INSERT INTO account VALUES (2)")
        .execute(&one.pool())
        .await
        .unwrap();
    assert_eq!(count(&mut one.connect().await).await, 2);
    assert_eq!(count(&mut other.connect().await).await, 1);
    // The template hasn't changed either.
    assert_eq!(count(&mut accounts().await.connect().await).await, 1);
}

#[test]
fn twenty_concurrent_tests_have_a_database_each() {
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| on_own_runtime(use_a_database()));
        }
    });
}

async fn use_a_database() {
    let db = accounts().await;
    sqlx::query("INSERT INTO account VALUES (2)")
        .execute(&db.pool_of(2))
        .await
        .unwrap();
    let mut connection = PgConnection::connect(&db.url()).await.unwrap();
    assert_eq!(count(&mut connection).await, 2);
}

#[tokio::test]
async fn a_dropped_database_disappears_even_with_open_connections() {
    let db = accounts().await;
    let name = db.name().to_owned();
    let _open = db.connect().await;
    drop(db);
    let other = TestDb::new().await;
    eventually("the database is gone", async || {
        let row = sqlx::query("SELECT count(*) FROM pg_database WHERE datname = $1")
            .bind(&name)
            .fetch_one(&other.pool())
            .await
            .unwrap();
        row.get::<i64, _>(0) == 0
    })
    .await;
}

#[test]
fn the_server_outlives_the_runtime_that_started_it() {
    on_own_runtime(use_a_database());
    on_own_runtime(use_a_database());
}

/// Like `#[tokio::test]`.
fn on_own_runtime(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work);
}
