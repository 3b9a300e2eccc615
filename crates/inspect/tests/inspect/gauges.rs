//! Gauges are correct, and cheap on deep tables.

use std::time::Duration;

use postrider::leader::{Periodic, run_periodic};
use postrider::outbox::OUTBOX;
use postrider::transport::DELIVERIES;
use postrider_inspect::gauges::{Gauge, MAX_COUNT, WorkTableGauges};
use postrider_inspect::queue_stats::QueueStats;
use sqlx::{Executor, PgPool};
use tokio_util::sync::CancellationToken;

use crate::support::{database, eventually};

async fn read(pool: &PgPool) -> Vec<Gauge> {
    WorkTableGauges::new([&OUTBOX, &DELIVERIES])
        .read(pool)
        .await
        .unwrap()
}

fn value(gauges: &[Gauge], name: &str, which: &str) -> Option<f64> {
    let matches = |gauge: &&Gauge| {
        gauge.name == name && gauge.label.as_ref().is_some_and(|(_, w)| w == which)
    };
    gauges.iter().find(matches).map(|gauge| gauge.value)
}

#[tokio::test]
async fn gauges_cover_depth_leases_losses_and_dead_letters() {
    const WORK: &str = "
        insert into postrider.outbox (topic, payload, due) values ('t', '1', now() - interval '7 minutes');
        insert into postrider.outbox (topic, payload, due) values ('t', '1', now() + interval '1 hour');
        insert into postrider.outbox (topic, payload, due, parked) values ('t', '1', 'infinity', 'why');
        insert into postrider.outbox (topic, payload, state, attempts, error_code, due)
            values ('u', '1', 'waiting', 0, 'UNROUTABLE', now() + interval '30 seconds');
        insert into postrider.outbox (topic, payload, state, lease_until, fence, lease_owner)
            values ('t', '1', 'leased', now() + interval '1 minute', 1, 'w'),
                   ('t', '1', 'leased', now() - interval '1 minute', 2, 'w');
        insert into postrider.attempt (work_table, item_id, attempt, worker, started_at, outcome, code, at)
            values ('postrider.outbox', 1, 1, 'w', now(), 'dead', 'X', now()),
                   ('postrider.outbox', 2, 1, 'w', now(), 'retry', 'X', now()),
                   ('postrider.outbox', 3, 1, 'w', now(), 'dead', 'X', now() - interval '2 hours');
        insert into postrider.worker (id, name, work_table, ttl)
            values ('a', 'a', 'postrider.outbox', '1 minute');
        insert into postrider.worker (id, name, work_table, ttl, seen_at)
            values ('b', 'b', 'postrider.outbox', '1 minute', now() - interval '2 minutes');
        insert into postrider.breaker (dependency, process, state, failures, open_until, changed_at)
            values ('shut', gen_random_uuid(), 'closed', 0, null, now()),
                   ('open', gen_random_uuid(), 'open', 20, now() + interval '5 s', now()),
                   ('open', gen_random_uuid(), 'half_open', 20, null, now()),
                   -- Of a dead process.
                   ('open', gen_random_uuid(), 'open', 20, now() - interval '2 hours', now() - interval '3 hours');";
    let db = database().await;
    let pool = db.pool();
    sqlx::raw_sql(WORK).execute(&pool).await.unwrap();
    let gauges = read(&pool).await;
    let table = |name| value(&gauges, name, "postrider.outbox").unwrap();
    assert_eq!(table("postrider_queue_depth"), 6.0);
    assert_eq!(table("postrider_queue_due"), 1.0);
    assert_eq!(table("postrider_queue_leased"), 2.0);
    assert_eq!(table("postrider_leases_expired"), 1.0);
    assert_eq!(table("postrider_queue_unroutable"), 1.0);
    assert_eq!(table("postrider_dead_last_hour"), 1.0);
    assert_eq!(table("postrider_workers"), 1.0);
    let age = table("postrider_queue_age_seconds");
    assert!((420.0..600.0).contains(&age), "{age}");
    let open = |which| value(&gauges, "postrider_breakers_open", which);
    assert_eq!((open("open"), open("shut")), (Some(2.0), Some(0.0)));
    // An empty table has all gauges; consumers of deliveries are no workers.
    let delivery = |name| value(&gauges, name, "postrider.delivery");
    assert_eq!(delivery("postrider_queue_age_seconds"), Some(0.0));
    assert_eq!(delivery("postrider_workers"), None);
}

#[tokio::test]
async fn only_the_head_of_the_claim_index_is_read() {
    let db = database().await;
    let pool = db.pool();
    pool.execute("insert into postrider.outbox (topic, payload) select 't', '1' from generate_series(1, 30000)")
        .await
        .unwrap();
    pool.execute("analyze postrider.outbox").await.unwrap();
    let depth = value(
        &read(&pool).await,
        "postrider_queue_depth",
        "postrider.outbox",
    );
    assert_eq!(depth, Some(MAX_COUNT as f64));
    let text = QueueStats::new([&OUTBOX]).statement().to_owned();
    let plan: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
        "explain (analyze, timing off) {text}"
    )))
    .fetch_all(&pool)
    .await
    .unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("outbox_claim"), "{plan}");
    assert!(!plan.contains("Seq Scan"), "{plan}");
    assert!(!plan.contains("actual rows=30000"), "{plan}");
}

#[tokio::test]
async fn a_failing_periodic_task_is_reported_until_it_succeeds() {
    let db = database().await;
    let pool = db.pool();
    let (healthy, stop) = (CancellationToken::new(), CancellationToken::new());
    let task = {
        let healthy = healthy.clone();
        move |_| {
            let healthy = healthy.is_cancelled();
            async move { if healthy { Ok(()) } else { Err("not yet") } }
        }
    };
    let periodic = Periodic::new("task", Duration::from_millis(20));
    let running = tokio::spawn(run_periodic(pool.clone(), periodic, stop.clone(), task));
    let failing = async || value(&read(&pool).await, "postrider_periodic_failing", "task");
    eventually("the task fails", async || failing().await == Some(1.0)).await;
    let success = value(
        &read(&pool).await,
        "postrider_leader_success_timestamp_seconds",
        "task",
    );
    assert_eq!(success, Some(0.0), "no run has succeeded");
    healthy.cancel();
    eventually("the task succeeds", async || failing().await == Some(0.0)).await;
    let gauges = read(&pool).await;
    let at = |name| value(&gauges, name, "task").unwrap();
    assert!(at("postrider_leader_success_timestamp_seconds") > 0.0);
    assert!(at("postrider_leader_heartbeat_timestamp_seconds") > 0.0);
    stop.cancel();
    running.await.unwrap().unwrap();
}
