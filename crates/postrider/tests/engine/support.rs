//! What the modules share: a migrated database each, and waiting for locks.

pub mod own_table;

use postrider::migrate::Migrator;
use postrider_testkit::TestDb;
pub use postrider_testkit::eventually;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

/// A database of its own with the engine's schema in it.
pub async fn database() -> TestDb {
    TestDb::from_template("engine", async |connection| {
        Migrator::new([postrider::migrations()])
            .run(connection)
            .await
            .map(drop)
    })
    .await
}

/// How the server would run a statement.
pub async fn plan(connection: &mut PgConnection, statement: &str) -> String {
    let explained = format!("explain {statement}");
    let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explained))
        .fetch_all(connection)
        .await
        .unwrap();
    rows.join("\n")
}

/// Waits until some statement of this database waits for another transaction.
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
