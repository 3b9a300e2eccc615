//! Plans that must not flip: a group's claim reads its own part of one index, however far behind another group is.

use postrider_engine::lease::Queue;
use postrider_engine::transport::DELIVERIES;
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::support::database;

const BACKLOG: &str = "
insert into postrider.message (segment, published_at, id, topic, payload)
select 1, now(), gen_random_uuid(), 't', '{}' from generate_series(1, 200);
insert into postrider.delivery (segment, message_id, consumer_group, topic)
select 1, m.id, 'behind', 't' from postrider.message m, generate_series(1, 100);
insert into postrider.delivery (segment, message_id, consumer_group, topic)
select 1, m.id, 'quick', 't' from postrider.message m limit 20;
analyze postrider.delivery; analyze postrider.message";

#[tokio::test]
async fn one_groups_backlog_is_not_in_anothers_way() {
    let db = database().await;
    let mut connection = db.connect().await;
    sqlx::raw_sql(BACKLOG)
        .execute(&mut connection)
        .await
        .unwrap();
    let queue = Queue::new(&DELIVERIES).unwrap();
    for (name, arguments) in [
        ("claim_one", "30, 1, 'me', null, 0, 100, array['quick']"),
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
