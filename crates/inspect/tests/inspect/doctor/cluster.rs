//! A healthy server, and checks that need a server of their own.

use postrider::lease::{Claim, Outcome, Queue, Settlement};
use postrider::migrate::Migrator;
use postrider::outbox::OUTBOX;
use postrider::transport::DELIVERIES;
use postrider_embedded::{Options, Postgres};
use postrider_inspect::doctor::{Doctor, Limits, Severity::*};
use sqlx::PgPool;

use super::limits;

fn doctor() -> Doctor {
    Doctor::new([&OUTBOX, &DELIVERIES])
        .limits(limits())
        .migrator(Migrator::new([postrider::migrations()]))
}

async fn execute(pool: &PgPool, sql: &'static str) {
    sqlx::raw_sql(sql).execute(pool).await.unwrap();
}

/// Durable settings, and two-phase commit allowed.
async fn server(dir: &tempfile::TempDir) -> (Postgres, PgPool) {
    let options = Options::new(dir.path()).setting("max_prepared_transactions", "2");
    let server = Postgres::start(options).await.unwrap();
    let pool = PgPool::connect_with(server.connect_options())
        .await
        .unwrap();
    Migrator::new([postrider::migrations()])
        .run(&mut pool.acquire().await.unwrap())
        .await
        .unwrap();
    (server, pool)
}

#[tokio::test]
async fn a_healthy_server_has_no_warnings_until_something_holds_vacuum_back() {
    let dir = postrider_testkit::builders::data_dir();
    let (server, pool) = server(&dir).await;

    execute(
        &pool,
        "select postrider.enqueue('t', ordering_key => 'k') from generate_series(1, 20)",
    )
    .await;
    let queue = Queue::new(&OUTBOX).unwrap();
    let claim = Claim::new("w", std::time::Duration::from_secs(30), 10);
    let (lease, _) = queue.claim(&pool, &claim).await.unwrap().remove(0);
    queue
        .settle(&pool, "w", vec![Settlement::new(lease, Outcome::Done)])
        .await
        .unwrap();
    let report = doctor().examine(&pool).await;
    let found = report.at_least(Warning);
    assert!(found.is_empty(), "{found:#?}");
    assert!(report.findings.len() > 30, "every look is told");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["findings"][0]["severity"], "ok");

    execute(
        &pool,
        "begin; create table t (); prepare transaction 'left'",
    )
    .await;
    let strict = Limits {
        transaction: std::time::Duration::ZERO,
        ..limits()
    };
    let report = doctor().limits(strict).examine(&pool).await;
    let found = report.at_least(Warning);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].check, "vacuum/prepared-transactions");
    assert_eq!(found[0].items, ["left"]);
    execute(&pool, "rollback prepared 'left'").await;

    execute(
        &pool,
        "select pg_create_physical_replication_slot('gone', true)",
    )
    .await;
    let report = doctor().examine(&pool).await;
    let found = report.at_least(Warning);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].check, "vacuum/replication-slots");
    assert!(
        found[0].items[0].starts_with("gone: not in use"),
        "{found:#?}"
    );

    pool.close().await;
    server.stop().await.unwrap();
}
