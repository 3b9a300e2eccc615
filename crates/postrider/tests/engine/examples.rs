//! The examples do what they say.

use std::path::PathBuf;

use postrider_testkit::TestDb;
use tokio::process::Command;

use crate::support::database;

/// `cargo test -p postrider` builds the examples beside the tests; a run of this binary alone does not.
fn built(name: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent()?.parent()?.join("examples").join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "example {name} is not built"
    );
    eprintln!("skipped: example {name} is not built");
    None
}

async fn run(db: &TestDb, name: &str) -> Option<String> {
    let example = built(name)?;
    let output = Command::new(example)
        .env("DATABASE_URL", db.url())
        .output()
        .await
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{name}: {text}");
    Some(text)
}

#[tokio::test]
async fn enqueue_in_your_transaction() {
    let db = TestDb::new().await;
    if let Some(said) = run(&db, "enqueue_in_your_transaction").await {
        assert!(said.contains("committed together"), "{said}");
    }
}

#[tokio::test]
async fn worker() {
    let db = TestDb::new().await;
    if let Some(said) = run(&db, "worker").await {
        assert!(said.contains("90 invoices written"), "{said}");
    }
}

#[tokio::test]
async fn own_table() {
    let db = TestDb::new().await;
    if let Some(said) = run(&db, "own_table").await {
        assert!(said.contains("50 thumbnails drawn"), "{said}");
    }
}

#[tokio::test]
async fn inbox_consumer() {
    let db = TestDb::new().await;
    if let Some(said) = run(&db, "inbox_consumer").await {
        assert!(said.contains("balance 90"), "{said}");
    }
}

#[tokio::test]
async fn sql_from_psql() {
    let db = database().await;
    let mut connection = db.connect().await;
    sqlx::raw_sql(include_str!("../../examples/sql_from_psql.sql"))
        .execute(&mut connection)
        .await
        .unwrap();
    let waiting: i64 = sqlx::query_scalar("select count(*) from postrider.outbox")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(waiting, 4, "the repeated dedupe key made one");
}
