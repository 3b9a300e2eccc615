//! Query plans that must stay the same however large the table is.

use postrider::lease::Queue;
use postrider_orders::OUTBOX_ORDERS;
use sqlx::{AssertSqlSafe, Row};

use crate::support::Fixture;

/// Twenty thousand pending rows, as many finished, as many due next week, and some parked ones.
const DEEP: &str = "
insert into orders.outbox_orders (idempotency_key, order_request_json, request_digest, due, status, finished_at, ordering_key, parked)
select 'k-' || n, '{}', repeat('0', 64),
       case n % 4 when 2 then now() + interval '7 days' when 3 then 'infinity' else now() end,
       case n % 4 when 1 then 'succeeded' else 'pending' end,
       case n % 4 when 1 then now() end,
       case n % 4 when 3 then 'account ' || n % 100 end,
       case n % 4 when 3 then 'behind' end
from generate_series(1, 80000) n;
analyze orders.outbox_orders";

#[tokio::test]
async fn a_claim_uses_the_claim_index() {
    let fixture = Fixture::new().await;
    let queue = Queue::new(&OUTBOX_ORDERS).unwrap();
    for depth in ["empty", "deep"] {
        if depth == "deep" {
            sqlx::raw_sql(DEEP).execute(&fixture.pool).await.unwrap();
        }
        let mut connection = fixture.pool.acquire().await.unwrap();
        let statements = queue.statements();
        let (_, text) = statements
            .iter()
            .find(|(name, _)| *name == "claim_any")
            .unwrap();
        for mode in ["force_generic_plan", "force_custom_plan"] {
            let prepare = format!("set plan_cache_mode = {mode}; prepare claiming as {text}");
            sqlx::raw_sql(AssertSqlSafe(prepare))
                .execute(&mut *connection)
                .await
                .unwrap();
            let explain = "begin; explain (analyze, buffers) execute claiming(30, 1, 'me', null, 0, 4, 1, 0); rollback; deallocate claiming";
            let rows = sqlx::raw_sql(explain)
                .fetch_all(&mut *connection)
                .await
                .unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(
                plan.contains("outbox_orders_claim"),
                "{depth}, {mode}:\n{plan}"
            );
            if depth == "deep" {
                assert!(!plan.contains("Seq Scan"), "{depth}, {mode}:\n{plan}");
                assert!(!plan.contains("Sort"), "{depth}, {mode}:\n{plan}");
            }
        }
    }
}
