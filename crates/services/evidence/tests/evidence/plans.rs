//! Query plans that must not change, with and without statistics.

use serde_json::json;
use sqlx::Connection;

use crate::support::{DEADLINE, Fixture, simulated_cases, within};

/// The first job of a new installation is large: the server has no statistics. Some of its rows have tasks.
const NO_STATISTICS: &str = "
do $$ begin execute format('alter database %I set random_page_cost = 4', current_database()); end $$;
alter table evidence.file_job_artifact set (autovacuum_enabled = off);
insert into evidence.file_job (id, merchant_id, source, row_count, artifact_count)
values ('00000000-0000-0000-0000-000000000001', 'm-1', 'json', 6000, 12000);
insert into evidence.file_job_row (id, file_job_id, row_number, case_id, evidence_count)
select gen_random_uuid(), j.id, n, gen_random_uuid(), 2 from evidence.file_job j, generate_series(1, 6000) n;
insert into evidence.file_job_artifact
    (id, file_job_id, file_job_row_id, case_id, artifact_number, file_name, s3_key, max_retries)
select gen_random_uuid(), r.file_job_id, r.id, r.case_id, n, 'f', 'not there', 2
from evidence.file_job_row r, generate_series(1, 2) n;
insert into evidence.attach_task (event_id, file_job_id, file_job_row_id, is_retry)
select gen_random_uuid(), r.file_job_id, r.id, false from evidence.file_job_row r where r.row_number <= 600";

const WAITING: &str = "select count(*) from evidence.attach_task";

const READ: &str = "
select (seq_tup_read + idx_tup_fetch)::bigint from pg_stat_user_tables
where schemaname = 'evidence' and relname = 'file_job_artifact'";

#[tokio::test]
async fn attaching_rows_of_the_first_large_job_does_not_read_the_others() {
    let fixture = Fixture::with(json!({ "concurrency": 64 })).await;
    sqlx::raw_sql(NO_STATISTICS)
        .execute(&fixture.pool)
        .await
        .unwrap();
    let before = read(&fixture).await;
    fixture.start_worker(simulated_cases(json!([])));
    within(
        DEADLINE,
        "six hundred rows are handled",
        async || match fixture.scalar::<i64>(WAITING).await {
            0 => Ok(()),
            count => Err(count),
        },
    )
    .await;
    // A connection reports its statistics when it closes at the latest.
    fixture.pool.close().await;
    let read = read(&fixture).await - before;
    assert!(
        read < 12_000,
        "{read} artifacts were read for 1,200 of 12,000"
    );
}

async fn read(fixture: &Fixture) -> i64 {
    let mut connection = fixture.connect().await;
    let read = sqlx::query_scalar(READ).fetch_one(&mut connection).await;
    connection.close().await.unwrap();
    read.unwrap()
}
