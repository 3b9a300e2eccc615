//! Query plans that must stay: a group's claim reads its own part of one index, however large another group's backlog is.

use postrider::lease::Queue;
use postrider::transport::{DELIVERIES, Message, MessageId, Transport};
use postrider_transports::PostgresTransport;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::support::{database, pool};

const BACKLOG: &str = "
insert into postrider.message (segment, published_at, id, topic, payload)
select 1, now(), gen_random_uuid(), 't', '{}' from generate_series(1, 2000);
insert into postrider.delivery (segment, message_id, consumer_group, topic)
select 1, m.id, 'behind', 't' from postrider.message m, generate_series(1, 10);
insert into postrider.delivery (segment, message_id, consumer_group, topic)
select 1, m.id, 'quick', 't' from postrider.message m limit 20;
analyze postrider.delivery; analyze postrider.message";

#[tokio::test]
async fn one_groups_backlog_does_not_slow_another() {
    let db = database().await;
    let mut connection = db.connect().await;
    sqlx::raw_sql(BACKLOG)
        .execute(&mut connection)
        .await
        .unwrap();
    let queue = Queue::new(&DELIVERIES).unwrap();
    for (name, arguments) in [
        (
            "claim_one",
            "30, 1, 'me', null, 0, 100, 1, 0, array['quick']",
        ),
        ("find_suspects_of_one", "null, 0, 100, array['quick']"),
    ] {
        let statements = queue.statements();
        let (_, text) = statements.iter().find(|(n, _)| *n == name).unwrap();
        for mode in ["force_generic_plan", "force_custom_plan"] {
            let script = format!("set plan_cache_mode = {mode}; prepare {name} as {text}");
            sqlx::raw_sql(AssertSqlSafe(script))
                .execute(&mut connection)
                .await
                .unwrap();
            let explain = format!("explain (analyze, buffers) execute {name}({arguments})");
            let rows = sqlx::raw_sql(AssertSqlSafe(format!("begin; {explain}; rollback")))
                .fetch_all(&mut connection)
                .await
                .unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(plan.contains("delivery_claim"), "{name}, {mode}:\n{plan}");
            assert!(
                plan.contains("Index Cond: ((consumer_group"),
                "{name}, {mode}:\n{plan}"
            );
            assert!(!plan.contains("Sort"), "{name}, {mode}:\n{plan}");
            assert!(!plan.contains("Seq Scan"), "{name}, {mode}:\n{plan}");
            let drop = format!("deallocate {name}");
            connection.execute(AssertSqlSafe(drop)).await.unwrap();
        }
    }
}

/// Number of sequential scans in this transaction.
const WHOLE_READS: &str = "
select relname::text, seq_scan from pg_stat_xact_user_tables
where schemaname = 'postrider' and relname in ('message_1', 'message_2', 'delivery') and seq_scan > 0";

#[tokio::test]
async fn publishing_never_scans_the_whole_log() {
    let db = database().await;
    let mut connection = db.connect().await;
    sqlx::raw_sql(BACKLOG)
        .execute(&mut connection)
        .await
        .unwrap();
    connection
        .execute("select postrider.turn_segment('0s'), postrider.subscribe('t', 'g')")
        .await
        .unwrap();
    let transport = PostgresTransport::new(pool(db.connect_options())).unwrap();
    // A new connection: the counters are per connection.
    let mut connection = db.connect().await;
    // From the sixth execution on, a prepared statement may get another plan.
    for round in 0..8 {
        let messages: Vec<Message> = (0..50)
            .map(|n| {
                Message::new(MessageId::new(uuid::Uuid::new_v4()), "t", "1")
                    .key(format!("{round} {n}"))
            })
            .collect();
        let mut tx = connection.begin().await.unwrap();
        transport.publish_in(&mut tx, &messages).await.unwrap();
        let whole: Vec<(String, i64)> = sqlx::query_as(WHOLE_READS)
            .fetch_all(&mut *tx)
            .await
            .unwrap();
        assert!(whole.is_empty(), "round {round}: {whole:?}");
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn every_statement_over_deliveries_is_valid() {
    let db = database().await;
    let mut connection = db.connect().await;
    for (name, text) in Queue::new(&DELIVERIES).unwrap().statements() {
        let prepared = connection
            .execute(AssertSqlSafe(format!("prepare {name} as {text}")))
            .await;
        assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
    }
}
