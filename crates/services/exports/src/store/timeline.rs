//! A job's history, as the timeline shows it.

use postrider_inspect::timeline::Event;
use sqlx::PgPool;
use uuid::Uuid;

/// By the job's key or id, or by the id of one of its inputs.
const HEAD: &str = "
select j.job_id, j.job_key, j.status, f.input_id
from (select k.job_id, null::uuid as input_id from exports.export_job k where k.job_key = $1
      union all select $2, null
      union all select i.job_id, i.input_id from exports.export_job_input i where i.input_id = $2) f
join exports.export_job j using (job_id)
limit 1";

/// `$2`: only this input. Inputs that failed come first.
const INPUTS: &str = "
select i.id from exports.export_job_input i
where i.job_id = $1 and ($2::uuid is null or i.input_id = $2)
order by i.error_code is null, i.id limit 100";

const EVENTS: &str = "
select * from (
    select e.* from exports.export_job j,
    lateral (values
        (j.requested_at, 'submitted', j.total_inputs || ' inputs', null::boolean),
        (j.started_at, 'started', null, null),
        (j.completed_at, lower(j.status), j.error_message, j.status = 'COMPLETED')) e(at, what, detail, good)
    where j.job_id = $1
    union all
    (select i.finished_at, case i.status when 'SUCCEEDED' then case when i.is_reused then 'file reused' else 'file generated' end
                                         else 'input dead' end,
           concat_ws(' ', i.index_key, i.effective_date, i.asof_indicator, coalesce(i.s3_path, i.error_code)),
           i.status = 'SUCCEEDED'
    from exports.export_job_input i where i.id = any($2) and i.finished_at is not null)) e
where e.at is not null order by e.at";

/// A job, and the input that was asked for if it was one.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Head {
    pub job_id: Uuid,
    pub job_key: String,
    pub status: String,
    input_id: Option<Uuid>,
}

pub(crate) async fn head(pool: &PgPool, id: &str) -> Result<Option<Head>, sqlx::Error> {
    sqlx::query_as(HEAD)
        .bind(id)
        .bind(id.parse::<Uuid>().ok())
        .fetch_optional(pool)
        .await
}

/// The ids of the job's inputs.
pub(crate) async fn inputs(pool: &PgPool, head: &Head) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(INPUTS)
        .bind(head.job_id)
        .bind(head.input_id)
        .fetch_all(pool)
        .await
}

pub(crate) async fn events(
    pool: &PgPool,
    head: &Head,
    inputs: &[i64],
) -> Result<Vec<Event>, sqlx::Error> {
    sqlx::query_as(EVENTS)
        .bind(head.job_id)
        .bind(inputs)
        .fetch_all(pool)
        .await
}
