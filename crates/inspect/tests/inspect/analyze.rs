//! Fast-growing tables get new plans before autovacuum analyzes them.

use postrider::{lease::Queue, outbox::OUTBOX};
use postrider_inspect::analyze;
use sqlx::{AssertSqlSafe, Executor, PgConnection};

use crate::support::{database, eventually};

const TEN: &str =
    "insert into postrider.outbox (topic, payload) select 't', '1' from generate_series(1, 10)";

const MANY: &str = "
insert into postrider.outbox (topic, payload)
select 't', to_json(repeat('x', 800)) from generate_series(1, 4000)";

/// The plan of a statement.
async fn plan(connection: &mut PgConnection, statement: &str) -> String {
    let explained = format!("explain {statement}");
    let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explained))
        .fetch_all(connection)
        .await
        .unwrap();
    rows.join("\n")
}

#[tokio::test]
async fn a_cached_plan_is_replaced_after_the_table_has_grown() {
    let db = database().await;
    let (pool, mut connection) = (db.pool(), db.connect().await);
    let statements = Queue::new(&OUTBOX).unwrap().statements();
    let (_, claim) = statements
        .iter()
        .find(|(name, _)| *name == "claim_any")
        .unwrap();
    let prepare = format!(
        "set random_page_cost = 4; set plan_cache_mode = force_generic_plan; prepare p as {claim}"
    );
    for script in [TEN, "analyze postrider.outbox", &prepare] {
        connection.execute(AssertSqlSafe(script)).await.unwrap();
    }
    let call = "execute p(30, 1, 'me', null, 0, 500, 1, 0)";
    let small = plan(&mut connection, call).await;
    assert!(small.contains("Seq Scan on outbox"), "{small}");
    assert_eq!(analyze::refresh(&pool).await.unwrap(), [""; 0]);

    connection.execute(MANY).await.unwrap();
    let kept = plan(&mut connection, call).await;
    assert!(kept.contains("Seq Scan on outbox"), "{kept}");

    assert_eq!(analyze::refresh(&pool).await.unwrap(), ["postrider.outbox"]);
    let large = plan(&mut connection, call).await;
    assert!(!large.contains("Seq Scan on outbox"), "{large}");
    assert_eq!(
        analyze::refresh(&pool).await.unwrap(),
        [""; 0],
        "analyzed only once"
    );
}

#[tokio::test]
async fn a_table_analyzed_while_empty_is_analyzed_again() {
    let db = database().await;
    let pool = db.pool();
    // The pages stay, and the statistics say that they are empty.
    for script in [
        MANY,
        "delete from postrider.outbox",
        "analyze postrider.outbox",
        MANY,
    ] {
        pool.execute(script).await.unwrap();
    }
    eventually("the table is analyzed", async || {
        analyze::refresh(&pool).await.unwrap() == ["postrider.outbox"]
    })
    .await;
    assert_eq!(analyze::refresh(&pool).await.unwrap(), [""; 0]);
}
