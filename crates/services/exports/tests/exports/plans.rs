//! Query plans that must not change, with and without statistics.

use postrider::lease::Queue;
use postrider_exports::EXPORT_JOB_INPUT;
use sqlx::{AssertSqlSafe, Row};

use crate::support::Fixture;

/// The first request of a new installation is large: the server has no statistics of the table.
const NO_STATISTICS: &str = "
alter table exports.export_job_input set (autovacuum_enabled = off);
insert into exports.export_job (job_id, number, job_key, total_inputs) values (gen_random_uuid(), 1, 'J1', 20000);
insert into exports.export_job_input (input_id, job_id, index_key, effective_date, asof_indicator)
select gen_random_uuid(), job_id, 'K' || n, 20240202, 'CLS' from exports.export_job, generate_series(1, 20000) n";

const ANALYZED: &str = "analyze exports.export_job_input";

#[tokio::test]
async fn claim_after_a_large_request_does_not_read_the_whole_request() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.pool.acquire().await.unwrap();
    let queue = Queue::new(&EXPORT_JOB_INPUT).unwrap();
    let statements = queue.statements();
    let claim = statements.iter().find(|(name, _)| *name == "claim_any");
    let (_, claim) = claim.unwrap();
    for statistics in [NO_STATISTICS, ANALYZED] {
        sqlx::raw_sql(statistics)
            .execute(&mut *connection)
            .await
            .unwrap();
        let due: String = sqlx::query_scalar(
            "select format('%L', max(next_retry_at)) from exports.export_job_input",
        )
        .fetch_one(&mut *connection)
        .await
        .unwrap();
        for mode in ["force_generic_plan", "force_custom_plan"] {
            for from in ["null", &due] {
                let explain = format!(
                    "set random_page_cost = 4; set plan_cache_mode = {mode}; prepare claiming as {claim}; begin; \
                     explain (analyze, timing off) execute claiming(30, 1, 'me', {from}, 0, 100, 1, 0); rollback; deallocate claiming"
                );
                let rows = sqlx::raw_sql(AssertSqlSafe(explain))
                    .fetch_all(&mut *connection)
                    .await
                    .unwrap();
                let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
                let plan = plan.join("\n");
                assert!(
                    plan.contains("export_job_input_claim"),
                    "{mode}, from {from}:\n{plan}"
                );
                assert!(!plan.contains("Sort"), "{mode}, from {from}:\n{plan}");
            }
        }
    }
}
