//! The doctor: each thing that can be wrong is broken in a database of its own, and is the only thing found.

mod cluster;
mod items;
mod pooler;
mod records;
mod server;

use postrider::migrate::Migrator;
use postrider::outbox::OUTBOX;
use postrider_inspect::doctor::{Doctor, Finding, Limits, Report, Severity};
use postrider_testkit::TestDb;

/// A migrated database with a worker that handles everything, so that what is due is not unhandled.
async fn healthy() -> TestDb {
    let db = TestDb::from_template("doctor", async |connection| {
        Migrator::new([postrider::migrations()])
            .run(connection)
            .await
            .map(drop)
    })
    .await;
    run(
        &db,
        "insert into postrider.worker (id, name, work_table, ttl) values ('w', 'w', 'postrider.outbox', '1 hour')",
    )
    .await;
    db
}

async fn run(db: &TestDb, sql: &'static str) {
    sqlx::raw_sql(sql).execute(&db.pool()).await.unwrap();
}

/// Limits that do not make a test wait.
fn limits() -> Limits {
    Limits {
        second_look: std::time::Duration::ZERO,
        ..Limits::default()
    }
}

async fn examine(db: &TestDb, limits: Limits) -> Report {
    Doctor::new([&OUTBOX])
        .limits(limits)
        .examine(&db.pool())
        .await
}

/// What is wrong. The tests' server is fast and unsafe on purpose, which is not what these tests are about.
fn wrong(report: &Report, from: Severity) -> Vec<Finding> {
    report
        .at_least(from)
        .into_iter()
        .filter(|finding| !finding.check.starts_with("server/"))
        .cloned()
        .collect()
}

/// The only thing that is wrong.
#[track_caller]
fn only(report: &Report, check: &str, severity: Severity) -> Finding {
    let found = wrong(report, severity.min(Severity::Warning));
    let [finding] = found.as_slice() else {
        panic!("not one finding but {}: {found:#?}", found.len());
    };
    assert_eq!(
        (finding.check.as_str(), finding.severity),
        (check, severity),
        "{finding:#?}"
    );
    let advice = finding.advice.as_deref().unwrap_or_default();
    assert!(
        !finding.what.is_empty() && !advice.is_empty(),
        "{finding:#?}"
    );
    finding.clone()
}

/// Breaks a healthy database and expects that this is all that is found.
async fn broken(sql: &'static str, check: &str, severity: Severity) -> Finding {
    let db = healthy().await;
    run(&db, sql).await;
    only(&examine(&db, limits()).await, check, severity)
}

/// Does something that is nobody's business.
async fn fine(sql: &'static str) {
    let db = healthy().await;
    run(&db, sql).await;
    let found = wrong(&examine(&db, limits()).await, Severity::Info);
    assert!(found.is_empty(), "{found:#?}");
}
