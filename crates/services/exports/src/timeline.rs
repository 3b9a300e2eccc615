//! What is known of a job, for whoever follows one.

use postrider_inspect::timeline::{Event, ItemId, Timeline};
use sqlx::PgPool;
use uuid::Uuid;

use crate::EXPORT_JOB_INPUT;

/// By the job's key or id, or by the id of one of its inputs.
const HEAD: &str = "
select j.job_id, j.job_key, j.status, f.input_id
from (select k.job_id, null::uuid as input_id from exports.export_job k where k.job_key = $1
      union all select $2, null
      union all select i.job_id, i.input_id from exports.export_job_input i where i.input_id = $2) f
join exports.export_job j using (job_id)
limit 1";

/// `$2`: one input alone. Of a large job the inputs that failed come first.
const INPUTS: &str = "
select i.id from exports.export_job_input i
where i.job_id = $1 and ($2::uuid is null or i.input_id = $2)
order by i.error_code is null, i.id limit 100";

const EVENTS: &str = "
select * from (
    select e.* from exports.export_job j,
    lateral (values
        (j.requested_at, 'submitted', j.total_inputs || ' inputs', null::boolean),
        (j.started_at, 'begun', null, null),
        (j.completed_at, lower(j.status), j.error_message, j.status = 'COMPLETED')) e(at, what, detail, good)
    where j.job_id = $1
    union all
    (select i.finished_at, case i.status when 'SUCCEEDED' then case when i.is_reused then 'file reused' else 'file made' end
                                         else 'input given up' end,
           concat_ws(' ', i.index_key, i.effective_date, i.asof_indicator, coalesce(i.s3_path, i.error_code)),
           i.status = 'SUCCEEDED'
    from exports.export_job_input i where i.id = any($2) and i.finished_at is not null)) e
where e.at is not null order by e.at";

/// The job that this is the key or id of, or the id of one of its inputs.
pub(crate) async fn trail(pool: &PgPool, id: &str) -> Result<Vec<Timeline>, sqlx::Error> {
    let uuid = id.parse::<Uuid>().ok();
    let head: Option<(Uuid, String, String, Option<Uuid>)> = sqlx::query_as(HEAD)
        .bind(id)
        .bind(uuid)
        .fetch_optional(pool)
        .await?;
    let Some((job, key, state, input)) = head else {
        return Ok(Vec::new());
    };
    let inputs: Vec<i64> = sqlx::query_scalar(INPUTS)
        .bind(job)
        .bind(input)
        .fetch_all(pool)
        .await?;
    let events: Vec<Event> = sqlx::query_as(EVENTS)
        .bind(job)
        .bind(&inputs)
        .fetch_all(pool)
        .await?;
    Ok(vec![Timeline {
        kind: "export job",
        key,
        state,
        events,
        items: inputs
            .into_iter()
            .map(|id| ItemId::new(EXPORT_JOB_INPUT.name, id))
            .collect(),
        messages: Vec::new(),
    }])
}
