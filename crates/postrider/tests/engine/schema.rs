//! What the database itself guarantees, and how it finds due items.

use postrider::lease::Queue;
use postrider::outbox::OUTBOX;
use sqlx::{AssertSqlSafe, Executor};

use crate::support::{database, plan};

/// Every combination of state and columns that must not exist.
const IMPOSSIBLE: &[&str] = &[
    "update postrider.outbox set state = 'leased'",
    "update postrider.outbox set lease_until = now(), fence = 1, lease_owner = 'x'",
    "update postrider.outbox set state = 'leased', lease_until = now(), fence = 1",
    "update postrider.outbox set state = 'leased', lease_until = now(), lease_owner = 'x'",
    "update postrider.outbox set fence = 1",
    "update postrider.outbox set state = 'done'",
    "update postrider.outbox set finished_at = now()",
    "update postrider.outbox set state = 'dead', finished_at = now()",
    "update postrider.outbox set state = 'dead', finished_at = now(), error_code = 'X'",
    "update postrider.outbox set attempts = 1",
    "update postrider.outbox set due = 'infinity'",
    "update postrider.outbox set parked = 'why'",
    "update postrider.outbox set state = 'waiting', lease_owner = 'x'",
    "update postrider.outbox set state = 'waiting', finished_at = now()",
    "insert into postrider.outbox (topic, payload, state) values ('t', '1', 'leased')",
    "insert into postrider.outbox (topic, payload, fence) values ('t', '1', 1)",
    "insert into postrider.outbox (topic, payload, attempts) values ('t', '1', 1)",
    "insert into postrider.outbox (topic, payload, parked) values ('t', '1', 'why')",
    "insert into postrider.outbox (topic, payload, state) values ('t', '1', 'done')",
    "insert into postrider.outbox (topic, payload, state, finished_at) values ('t', '1', 'dead', now())",
];

#[tokio::test]
async fn the_database_rejects_every_invalid_state() {
    let db = database().await;
    let mut connection = db.connect().await;
    connection
        .execute("select postrider.enqueue('t')")
        .await
        .unwrap();
    for statement in IMPOSSIBLE {
        let error = connection.execute(*statement).await.expect_err(statement);
        let code = error
            .as_database_error()
            .unwrap()
            .code()
            .unwrap()
            .into_owned();
        assert_eq!(code, "23514", "{statement}: {error}");
    }
}

#[tokio::test]
async fn no_index_covers_columns_that_a_claim_changes() {
    const CHANGED: &str = "
        select count(*) from pg_index i
        join pg_attribute a on a.attrelid = i.indrelid and a.attname in ('state', 'lease_until', 'fence', 'lease_owner')
        where i.indrelid = 'postrider.outbox'::regclass
          and (a.attnum = any(i.indkey) or pg_get_expr(i.indpred, i.indrelid) ~ a.attname)";
    let db = database().await;
    let covered: i64 = sqlx::query_scalar(CHANGED)
        .fetch_one(&mut db.connect().await)
        .await
        .unwrap();
    assert_eq!(covered, 0);
}

#[tokio::test]
async fn every_statement_is_valid_and_the_claim_uses_its_index_with_and_without_statistics() {
    let db = database().await;
    let mut connection = db.connect().await;
    connection
        .execute("set plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    for fill in [0, 20_000] {
        let rows =
            format!("select count(postrider.enqueue('t', '1')) from generate_series(1, {fill})");
        connection.execute(AssertSqlSafe(rows)).await.unwrap();
        if fill > 0 {
            connection
                .execute("analyze postrider.outbox")
                .await
                .unwrap();
        }
        for (name, text) in queue.statements() {
            let prepared = format!("prepare p as {text}");
            connection
                .execute(AssertSqlSafe(prepared))
                .await
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let arguments: i32 = sqlx::query_scalar(
                "select cardinality(parameter_types) from pg_prepared_statements where name = 'p'",
            )
            .fetch_one(&mut connection)
            .await
            .unwrap();
            let nulls = vec!["null"; usize::try_from(arguments).unwrap()].join(", ");
            let plan = plan(&mut connection, &format!("execute p({nulls})")).await;
            if name.starts_with("claim_any")
                || name.starts_with("claim_o")
                || name.starts_with("find_suspects")
            {
                assert!(
                    plan.contains("outbox_claim"),
                    "{name} at {fill} rows:\n{plan}"
                );
            }
            if name == "done_in_place" {
                assert!(plan.contains("Tid Scan on outbox"), "{name}:\n{plan}");
            }
            if ["done", "release", "renew"].contains(&name) && fill > 0 {
                assert!(plan.contains("outbox_pkey"), "{name}:\n{plan}");
                assert!(!plan.contains("Seq Scan on outbox"), "{name}:\n{plan}");
            }
            connection.execute("deallocate p").await.unwrap();
        }
    }
}

/// Statistics that the table may have when a backlog arrives.
const BELIEFS: [(&str, &str); 3] = [
    ("it has never looked", ""),
    (
        "it looked when everything was leased",
        "insert into postrider.outbox (topic, payload, state, lease_until, fence, lease_owner)
         select 't', '1', 'leased', now() + interval '1 hour', 1, 'x' from generate_series(1, 500); analyze postrider.outbox;",
    ),
    (
        "it looked when everything was dead",
        "insert into postrider.outbox (topic, payload, state, finished_at, error_code, cause)
         select 't', '1', 'dead', now(), 'X', 'X' from generate_series(1, 500); analyze postrider.outbox;",
    ),
];

#[tokio::test]
async fn a_claim_never_sorts_the_backlog_whatever_the_statistics() {
    let claim = Queue::new(&OUTBOX).unwrap().statements();
    let (_, claim) = claim.iter().find(|(name, _)| *name == "claim_any").unwrap();
    for (belief, script) in BELIEFS {
        for (rows, bytes) in [(4_000, 800), (200_000, 10)] {
            let db = database().await;
            let mut connection = db.connect().await;
            let fill = format!(
                "set random_page_cost = 4; alter table postrider.outbox set (autovacuum_enabled = off); {script}
                 insert into postrider.outbox (topic, payload)
                 select 't', to_json(repeat('x', {bytes})) from generate_series(1, {rows})"
            );
            connection.execute(AssertSqlSafe(fill)).await.unwrap();
            for mode in ["force_generic_plan", "force_custom_plan"] {
                let prepare = format!("set plan_cache_mode = {mode}; prepare p as {claim}");
                connection.execute(AssertSqlSafe(prepare)).await.unwrap();
                let call = "execute p(30, 1, 'me', null, 0, 500, 1, 0)";
                let plan = plan(&mut connection, call).await;
                assert!(
                    plan.contains("Index Scan using outbox_claim") && !plan.contains("Sort"),
                    "{belief}, {rows} rows, {mode}:\n{plan}"
                );
                connection.execute("deallocate p").await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn claims_stay_on_their_page() {
    use postrider::lease::Claim;
    let db = database().await;
    let pool = db.pool();
    pool.execute("insert into postrider.outbox (topic, payload) select 't', '{}' from generate_series(1, 5000)").await.unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    let claim = Claim::new("w", std::time::Duration::from_secs(60), 5_000);
    assert_eq!(queue.claim(&pool, &claim).await.unwrap().len(), 5_000);
    // Statistics arrive a little later.
    crate::support::eventually("all updates are heap-only", async || {
        let share: Option<f64> = sqlx::query_scalar(
            "select n_tup_hot_upd::float8 / nullif(n_tup_upd, 0) from pg_stat_user_tables where relid = 'postrider.outbox'::regclass")
            .fetch_one(&pool).await.unwrap();
        share.is_some_and(|share| share > 0.95)
    })
    .await;
}
