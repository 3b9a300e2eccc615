//! A migrated database for each test, and a work table with column names of its own.

#[allow(dead_code)]
#[path = "../../../postrider/tests/engine/support/own_table.rs"]
pub mod own_table;

use postrider::migrate::Migrator;
use postrider_testkit::TestDb;
pub use postrider_testkit::eventually;

/// A database with the schema `postrider`.
pub async fn database() -> TestDb {
    TestDb::from_template("inspect", async |connection| {
        Migrator::new([postrider::migrations()])
            .run(connection)
            .await
            .map(drop)
    })
    .await
}
