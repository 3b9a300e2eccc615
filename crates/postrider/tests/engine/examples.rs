//! The examples work as documented.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postrider_testkit::TestDb;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::database;

/// `cargo test -p postrider` builds the examples as well; running this binary alone doesn't.
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

#[test]
fn readme_and_crate_docs_show_the_quickstart() {
    let example = include_str!("../../examples/quickstart.rs");
    let start = example.find("use postrider").unwrap();
    let program = example[start..].trim_end();
    let docs: Vec<&str> = include_str!("../../src/lib.rs")
        .lines()
        .map(|line| {
            line.trim_start_matches("//!")
                .strip_prefix(' ')
                .unwrap_or("")
        })
        .collect();
    assert!(docs.join("\n").contains(program), "src/lib.rs differs");
    assert!(
        include_str!("../../README.md").contains(program),
        "README.md differs"
    );
}

#[tokio::test]
async fn quickstart() {
    let Some(example) = built("quickstart") else {
        return;
    };
    let db = TestDb::new().await;
    let mut child = Command::new(example)
        .env("DATABASE_URL", db.url())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(Duration::from_secs(60), lines.next_line()).await;
    assert_eq!(
        line.unwrap().unwrap().unwrap(),
        "sending an email to ada@example.org"
    );
    let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let status = timeout(Duration::from_secs(60), child.wait()).await;
    assert!(status.unwrap().unwrap().success());
    let left: i64 = sqlx::query_scalar("select count(*) from postrider.outbox")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    assert_eq!(left, 0);
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
