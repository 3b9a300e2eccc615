//! The doctor: each problem is created in a database of its own and must be the only finding.

mod cluster;
mod items;
mod pooler;
mod records;
mod server;

use postrider::migrate::Migrator;
use postrider::outbox::OUTBOX;
use postrider_inspect::doctor::{Doctor, Finding, Limits, Report, Severity};
use postrider_testkit::TestDb;

/// A migrated database with a live worker for all kinds.
async fn healthy_database() -> TestDb {
    let db = TestDb::from_template("doctor", async |connection| {
        Migrator::new([postrider::migrations()])
            .run(connection)
            .await
            .map(drop)
    })
    .await;
    execute(
        &db,
        "insert into postrider.worker (id, name, work_table, ttl) values ('w', 'w', 'postrider.outbox', '1 hour')",
    )
    .await;
    db
}

async fn execute(db: &TestDb, sql: &'static str) {
    sqlx::raw_sql(sql).execute(&db.pool()).await.unwrap();
}

/// Limits without waiting.
fn limits() -> Limits {
    Limits {
        recheck_after: std::time::Duration::ZERO,
        ..Limits::default()
    }
}

async fn examine(db: &TestDb, limits: Limits) -> Report {
    Doctor::new([&OUTBOX])
        .limits(limits)
        .examine(&db.pool())
        .await
}

/// Findings of at least this severity. Skips `server/`: the test server is fast and unsafe on purpose.
fn problems(report: &Report, from: Severity) -> Vec<Finding> {
    report
        .at_least(from)
        .into_iter()
        .filter(|finding| !finding.check.starts_with("server/"))
        .cloned()
        .collect()
}

/// The only problem.
#[track_caller]
fn only_problem(report: &Report, check: &str, severity: Severity) -> Finding {
    let found = problems(report, severity.min(Severity::Warning));
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

/// Runs SQL on a healthy database and expects exactly this finding.
async fn expect_finding(sql: &'static str, check: &str, severity: Severity) -> Finding {
    let db = healthy_database().await;
    execute(&db, sql).await;
    only_problem(&examine(&db, limits()).await, check, severity)
}

/// Runs SQL on a healthy database and expects no finding.
async fn expect_healthy(sql: &'static str) {
    let db = healthy_database().await;
    execute(&db, sql).await;
    let found = problems(&examine(&db, limits()).await, Severity::Info);
    assert!(found.is_empty(), "{found:#?}");
}
