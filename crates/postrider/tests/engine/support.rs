//! Shared test support: a migrated database per test, query plans, and waiting for locks.

pub mod own_table;

use postrider::migrate::Migrator;
use postrider_testkit::TestDb;
pub use postrider_testkit::eventually;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

/// A database of its own with the library's schema.
pub async fn database() -> TestDb {
    TestDb::from_template("engine", async |connection| {
        Migrator::new([postrider::migrations()])
            .run(connection)
            .await
            .map(drop)
    })
    .await
}

/// The server's plan for a statement.
pub async fn plan(connection: &mut PgConnection, statement: &str) -> String {
    let explained = format!("explain {statement}");
    let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explained))
        .fetch_all(connection)
        .await
        .unwrap();
    rows.join("\n")
}

/// Waits until a statement of this database waits for another transaction.
pub async fn waits_for_a_lock(pool: &PgPool) {
    const WAITING: &str = "
        select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually("a statement waits for a lock", async || {
        sqlx::query_scalar::<_, bool>(WAITING)
            .fetch_one(pool)
            .await
            .unwrap()
    })
    .await;
}
