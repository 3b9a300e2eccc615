//! Depth and throughput are correct, and cheap on deep tables.

use postrider::outbox::OUTBOX;
use postrider::transport::DELIVERIES;
use postrider_inspect::queue_stats::{CAP, QueueStats};
use sqlx::types::time::OffsetDateTime;
use sqlx::{Executor, Row};

use crate::support::{database, own_table};

/// One leased, two due, three later, four parked, five dead.
const OF_EACH: &str = "
insert into postrider.outbox (topic, payload, due, state, lease_until, fence, lease_owner, attempts, parked, finished_at, error_code, cause)
select 't', '1',
       case s.state when 'later' then now() + interval '1 hour' when 'parked' then 'infinity' else now() - interval '1 minute' end,
       case s.state when 'leased' then 'leased' when 'dead' then 'dead' when 'later' then 'waiting' else 'ready' end::postrider.work_state,
       case s.state when 'leased' then now() + interval '1 hour' end, case s.state when 'leased' then 1 end,
       case s.state when 'leased' then 'w' end, (s.state = 'later')::integer,
       case s.state when 'parked' then 'why' end, case s.state when 'dead' then now() end,
       case s.state when 'dead' then 'X' end, case s.state when 'dead' then 'X' end
from (values ('leased', 1), ('ready', 2), ('later', 3), ('parked', 4), ('dead', 5)) s(state, n), generate_series(1, s.n)";

#[tokio::test]
async fn each_item_is_counted_once_by_its_state() {
    let db = database().await;
    let pool = db.pool();
    pool.execute(OF_EACH).await.unwrap();
    pool.execute(
        "insert into postrider.delivery (due, segment, message_id, consumer_group, topic, parked)
         select case when n % 5 = 0 then 'infinity' else now() end, 1, gen_random_uuid(), 'g' || n % 3, 't',
                case when n % 5 = 0 then 'why' end
         from generate_series(1, 30) n",
    )
    .await
    .unwrap();
    let depths = QueueStats::new([&OUTBOX, &DELIVERIES])
        .depths(&pool)
        .await
        .unwrap();
    let outbox = &depths[0];
    assert_eq!(
        (
            outbox.leased,
            outbox.ready,
            outbox.later,
            outbox.parked,
            outbox.dead
        ),
        (1, 2, 3, 4, 5)
    );
    assert!(outbox.oldest_seconds.unwrap() >= 60.0);
    let deliveries = &depths[1];
    assert_eq!(
        (
            deliveries.ready,
            deliveries.later,
            deliveries.parked,
            deliveries.dead
        ),
        (24, 0, 6, 0),
        "summed over all groups"
    );
}

#[tokio::test]
async fn counts_stop_at_the_cap() {
    let db = database().await;
    let pool = db.pool();
    pool.execute(
        "insert into postrider.outbox (topic, payload, due)
         select 't', '1', now() + case when n % 2 = 0 then interval '1 hour' else interval '0' end
         from generate_series(1, 60000) n;
         insert into postrider.delivery (segment, message_id, consumer_group, topic)
         select 1, gen_random_uuid(), 'g' || n % 2, 't' from generate_series(1, 60000) n;
         analyze postrider.outbox, postrider.delivery",
    )
    .await
    .unwrap();
    let stats = QueueStats::new([&OUTBOX, &DELIVERIES]);
    for depth in stats.depths(&pool).await.unwrap() {
        assert_eq!(depth.ready, CAP + 1, "{depth:?}");
    }
    let explain = format!("explain (analyze, timing off) {}", stats.statement());
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(explain))
        .fetch_all(&pool)
        .await
        .unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    assert!(!plan.contains("Sort"), "{plan}");
    assert!(
        plan.contains("outbox_claim") && plan.contains("delivery_claim"),
        "{plan}"
    );
}

#[tokio::test]
async fn throughput_covers_deleting_and_keeping_tables() {
    let db = database().await;
    let pool = db.pool();
    own_table::create(&pool).await;
    pool.execute(
        "insert into postrider.completion (work_table, worker, ids) values ('postrider.outbox', 'w', '{1,2,3}');
         insert into postrider.attempt (work_table, item_id, attempt, worker, started_at, outcome, code) values
             ('postrider.outbox', 3, 1, 'w', now(), 'retry', 'X'), ('postrider.outbox', 3, 2, 'w', now(), 'done', null),
             ('shop.parcel', 1, 1, 'w', now(), 'dead', 'X');
         insert into postrider.completion (at, work_table, worker, ids) values (now() - interval '1 day', 'postrider.outbox', 'w', '{9}');
         insert into shop.parcel (weight, status, closed_at, error_code) values
             (1, 'DLQ', now(), 'X'), (2, 'SUCCEEDED', now(), null), (3, 'SUCCEEDED', now(), null)",
    )
    .await
    .unwrap();
    let stats = QueueStats::new([&OUTBOX, &own_table::PARCEL]);
    let since = OffsetDateTime::now_utc() - std::time::Duration::from_secs(600);
    let throughput = stats.throughput(&pool, since).await.unwrap();
    let sum = |table: &str, outcome: &str| -> i64 {
        throughput
            .iter()
            .filter(|bucket| bucket.work_table == table && bucket.outcome == outcome)
            .map(|bucket| bucket.count)
            .sum()
    };
    assert_eq!(sum("postrider.outbox", "done"), 3);
    assert_eq!(sum("postrider.outbox", "done_after_retry"), 1);
    assert_eq!(sum("postrider.outbox", "retry"), 1);
    assert_eq!(sum("shop.parcel", "done"), 2);
    assert_eq!(sum("shop.parcel", "dead"), 1);
}
