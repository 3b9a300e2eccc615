//! Schema, storage, what holds vacuum back, and checks that fail.

use std::time::Duration;

use postrider::migrate::{Migration, MigrationSet, Migrator};
use postrider::outbox::OUTBOX;
use postrider_inspect::doctor::{Doctor, Limits, Severity::*};
use postrider_testkit::{TestDb, eventually};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection};

use super::{examine, execute, expect_finding, healthy_database, limits, only_problem, problems};

#[tokio::test]
async fn a_missing_claim_index_is_reported() {
    let found = expect_finding(
        "drop index postrider.outbox_claim",
        "schema/claim-index",
        Critical,
    )
    .await;
    let advice = found.advice.unwrap();
    assert!(
        advice.contains("on postrider.outbox (due, id) where finished_at is null"),
        "{advice}"
    );
}

#[tokio::test]
async fn an_invalid_claim_index_is_reported() {
    let db = healthy_database().await;
    execute(
        &db,
        "update pg_index set indisvalid = false where indexrelid = 'postrider.outbox_claim'::regclass",
    )
    .await;
    let found = problems(&examine(&db, limits()).await, Warning);
    let checks: Vec<&str> = found.iter().map(|f| f.check.as_str()).collect();
    assert_eq!(checks, ["schema/claim-index", "schema/invalid-indexes"]);
}

#[tokio::test]
async fn an_unfinished_index_is_reported() {
    let found = expect_finding(
        "create index half on postrider.outbox (topic);
         update pg_index set indisvalid = false where indexrelid = 'postrider.half'::regclass",
        "schema/invalid-indexes",
        Warning,
    )
    .await;
    assert_eq!(found.items, ["postrider.half"]);
}

#[tokio::test]
async fn an_index_on_a_claimed_column_is_reported() {
    for index in [
        "create index costly on postrider.outbox (lease_until)",
        "create index costly on postrider.outbox (topic) where state = 'ready'",
        "create index costly on postrider.outbox (topic) include (fence)",
        "create index costly on postrider.outbox (lower(lease_owner))",
    ] {
        let found = expect_finding(index, "schema/claim-cost", Warning).await;
        assert_eq!(found.items, ["postrider.costly"], "{index}");
    }
}

#[tokio::test]
async fn pending_migrations_are_reported() {
    let db = healthy_database().await;
    let more = MigrationSet {
        schema: "more",
        migrations: &[Migration {
            version: 1,
            name: "0001_more",
            sql: "select 1",
        }],
    };
    let doctor = Doctor::new([&OUTBOX])
        .limits(limits())
        .migrator(Migrator::new([postrider::migrations(), more]));
    let found = only_problem(&doctor.examine(&db.pool()).await, "schema/version", Warning);
    assert_eq!(found.items, ["more/0001_more"]);
}

#[tokio::test]
async fn a_schema_newer_than_the_program_is_reported() {
    let db = healthy_database().await;
    execute(
        &db,
        "insert into postrider.schema_migration (schema, version, name, checksum, took, program_version)
         values ('postrider', 9999, '9999_later', repeat('0', 64), '0', '9')",
    )
    .await;
    let doctor = Doctor::new([&OUTBOX])
        .limits(limits())
        .migrator(Migrator::new([postrider::migrations()]));
    let found = only_problem(
        &doctor.examine(&db.pool()).await,
        "schema/version",
        Critical,
    );
    assert!(found.what.contains("9999"), "{found:?}");
}

#[tokio::test]
async fn a_missing_schema_advises_migrate_and_the_server_is_still_examined() {
    let db = TestDb::new().await;
    let report = examine(&db, limits()).await;
    let found = problems(&report, Warning);
    assert_eq!(found[0].check, "schema/table");
    assert_eq!(found[0].severity, Critical);
    for finding in &found {
        let advice = finding.advice.as_deref().unwrap();
        assert!(advice.contains("postrider migrate"), "{finding:?}");
    }
    let is_there = |check| report.findings.iter().any(|f| f.check == check);
    assert!(is_there("server/wraparound") && is_there("vacuum/dead-rows"));
}

#[tokio::test]
async fn an_open_transaction_is_reported_without_its_query() {
    let db = healthy_database().await;
    let options = db.connect_options().application_name("idle-client");
    let mut idle = PgConnection::connect_with(&options).await.unwrap();
    sqlx::raw_sql("begin; select 'secret'")
        .execute(&mut idle)
        .await
        .unwrap();
    let limits = Limits {
        transaction: Duration::ZERO,
        ..limits()
    };
    let report = examine(&db, limits).await;
    let found = only_problem(&report, "vacuum/open-transactions", Critical);
    let [who] = found.items.as_slice() else {
        panic!("{found:?}")
    };
    assert!(
        who.starts_with("pid ") && who.contains("\"idle-client\", idle in transaction"),
        "{who}"
    );
    assert!(!format!("{report:?}").contains("secret"));
}

#[tokio::test]
async fn accumulated_dead_rows_are_reported() {
    let db = healthy_database().await;
    execute(
        &db,
        "insert into postrider.outbox (topic, payload) select 't', '{}' from generate_series(1, 500);
         delete from postrider.outbox; select pg_stat_force_next_flush()",
    )
    .await;
    let limits = || Limits {
        dead_rows: 100,
        ..limits()
    };
    let found = eventually("the statistics arrive", async || {
        let found = problems(&examine(&db, limits()).await, Warning);
        found.into_iter().find(|f| f.check == "vacuum/dead-rows")
    })
    .await;
    assert_eq!(
        found.items,
        ["postrider.outbox: 500 dead, 0 live, never vacuumed"]
    );
}

#[tokio::test]
async fn a_bloated_table_is_reported() {
    let db = healthy_database().await;
    execute(
        &db,
        "insert into postrider.outbox (topic, payload) select 't', '{}' from generate_series(1, 20000);
         delete from postrider.outbox where id < 20000;",
    )
    .await;
    execute(&db, "vacuum (analyze, truncate off) postrider.outbox").await;
    let limits = || Limits {
        bloat: 100_000,
        ..limits()
    };
    let found = eventually("the statistics arrive", async || {
        let found = problems(&examine(&db, limits()).await, Info);
        found.into_iter().find(|f| f.check == "vacuum/bloat")
    })
    .await;
    assert!(
        found.items[0].starts_with("postrider.outbox: "),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_changed_collation_version_is_reported() {
    let db = healthy_database().await;
    execute(
        &db,
        "create table names (name text collate \"en-x-icu\");
         update pg_collation set collversion = '1' where collname = 'en-x-icu'",
    )
    .await;
    let report = examine(&db, limits()).await;
    let found = report
        .findings
        .iter()
        .find(|f| f.check == "server/collation");
    let found = found.unwrap();
    assert_eq!(found.severity, Critical, "{found:?}");
    assert_eq!(found.items, ["collation \"en-x-icu\""]);
}

#[tokio::test]
async fn a_check_without_permission_is_a_finding_and_stops_no_other() {
    let db = healthy_database().await;
    // A role that may only connect.
    let options = db
        .connect_options()
        .options([("role", "pg_signal_backend")]);
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(options);
    let report = Doctor::new([&OUTBOX]).limits(limits()).examine(&pool).await;
    let found = problems(&report, Warning);
    assert!(found.len() > 3, "{found:#?}");
    for finding in &found {
        assert!(finding.what.contains("permission denied"), "{finding:?}");
        assert!(
            finding.advice.as_deref().unwrap().contains("grant"),
            "{finding:?}"
        );
    }
    let told = problems(&report, Info);
    assert!(told.iter().any(|f| f.check == "vacuum/sight"), "{told:#?}");
    assert!(
        report
            .findings
            .iter()
            .any(|f| f.check == "server/wraparound" && f.severity == Ok)
    );
}

#[tokio::test]
async fn a_check_of_a_locked_table_times_out_and_the_rest_runs() {
    let db = healthy_database().await;
    let pool = db.pool();
    let mut holder = pool.begin().await.unwrap();
    sqlx::raw_sql("lock table postrider.ledger in access exclusive mode")
        .execute(&mut *holder)
        .await
        .unwrap();
    let limits = Limits {
        timeout: Duration::from_millis(500),
        ..limits()
    };
    let found = only_problem(&examine(&db, limits).await, "I5/ledger", Warning);
    assert!(found.what.contains("the check failed"), "{found:?}");
}

#[tokio::test]
async fn an_unreachable_database_is_the_only_finding() {
    let db = healthy_database().await;
    let options = db.connect_options().database("no_such_database");
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let report = Doctor::new([&OUTBOX]).limits(limits()).examine(&pool).await;
    let checks: Vec<&str> = report.findings.iter().map(|f| f.check.as_str()).collect();
    assert_eq!(checks, ["connection"]);
    pool.close().await;
    let report = Doctor::new([&OUTBOX]).limits(limits()).examine(&pool).await;
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.worst(), Critical);
}

#[tokio::test]
async fn the_doctor_needs_no_write_access() {
    let db = healthy_database().await;
    let options = db
        .connect_options()
        .options([("default_transaction_read_only", "on")]);
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect_lazy_with(options);
    let report = Doctor::new([&OUTBOX])
        .limits(limits())
        .migrator(Migrator::new([postrider::migrations()]))
        .examine(&pool)
        .await;
    let found = problems(&report, Info);
    assert!(found.is_empty(), "{found:#?}");
}
