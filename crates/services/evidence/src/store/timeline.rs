//! A file job's history, as the timeline shows it.

use postrider_inspect::timeline::Event;
use sqlx::PgPool;
use uuid::Uuid;

/// By the id of a job, a row, an artifact or a notification.
const HEAD: &str = "
select j.id as job, f.row_id, f.artifact_id,
       case when j.closed_at is not null then 'closed' when j.n1_sent_at is not null then 'being retried' else 'open' end as state
from (select $1::uuid as job_id, null::uuid as row_id, null::uuid as artifact_id
      union all select r.file_job_id, r.id, null from evidence.file_job_row r where r.id = $1
      union all select a.file_job_id, a.file_job_row_id, a.id from evidence.file_job_artifact a where a.id = $1
      union all select n.file_job_id, null, null from evidence.notification n where n.id = $1) f
join evidence.file_job j on j.id = f.job_id
limit 1";

/// `$2`, `$3`: only this row or this artifact.
const ATTEMPTS: &str = "
select t.at, 'attach ' || lower(t.outcome) as what,
       concat_ws(', ', a.file_name, 'attempt ' || t.attempt, t.error_code, t.error_message) as detail,
       t.outcome = 'ATTACHED' as good, t.event_id
from evidence.file_job_artifact a
join evidence.attach_attempt t on t.artifact_id = a.id and t.outcome in ('ATTACHED', 'FAILED', 'LOST')
where a.file_job_id = $1 and ($2::uuid is null or a.file_job_row_id = $2) and ($3::uuid is null or a.id = $3)
order by t.at limit 500";

const EVENTS: &str = "
select * from (
    select e.* from evidence.file_job j,
    lateral (values
        (j.created_at, 'submitted', j.artifact_count || ' files in ' || j.row_count || ' rows by ' || j.merchant_id, null::boolean),
        (j.n1_sent_at, 'N1: every file was tried', null, null),
        (j.n2_sent_at, case when j.n2_forced then 'N2, forced' else 'N2: nothing is left to retry' end, null, null),
        (j.closed_at, 'closed', null, true)) e(at, what, detail, good)
    where j.id = $1
    union all
    select e.* from evidence.notification n,
    lateral (values
        (n.created_at, n.kind || ' created', null, null::boolean),
        (n.delivered_at, n.kind || ' delivered', null, true)) e(at, what, detail, good)
    where n.file_job_id = $1) e
where e.at is not null order by e.at";

/// Tasks that wait or are dead.
const TASKS: &str = "
select t.id from evidence.file_job_row r
join evidence.attach_task t on t.file_job_row_id = r.id and t.finished_at is null
where r.file_job_id = $1 and ($2::uuid is null or r.id = $2)
union all
select t.id from evidence.attach_task t
where t.cause is not null and t.file_job_id = $1 and ($2::uuid is null or t.file_job_row_id = $2)
limit 200";

#[derive(sqlx::FromRow)]
struct AttemptEvent {
    #[sqlx(flatten)]
    event: Event,
    event_id: Uuid,
}

/// A job, and the row or artifact that was asked for if it was one.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Head {
    pub job: Uuid,
    pub state: String,
    row_id: Option<Uuid>,
    artifact_id: Option<Uuid>,
}

pub(crate) async fn head(pool: &PgPool, id: Uuid) -> Result<Option<Head>, sqlx::Error> {
    sqlx::query_as(HEAD).bind(id).fetch_optional(pool).await
}

/// What happened, and the ids of the messages that asked for attempts.
pub(crate) async fn events(
    pool: &PgPool,
    head: &Head,
) -> Result<(Vec<Event>, Vec<Uuid>), sqlx::Error> {
    let mut events: Vec<Event> = sqlx::query_as(EVENTS)
        .bind(head.job)
        .fetch_all(pool)
        .await?;
    let attempts: Vec<AttemptEvent> = sqlx::query_as(ATTEMPTS)
        .bind(head.job)
        .bind(head.row_id)
        .bind(head.artifact_id)
        .fetch_all(pool)
        .await?;
    let mut messages: Vec<Uuid> = attempts.iter().map(|attempt| attempt.event_id).collect();
    messages.sort_unstable();
    messages.dedup();
    events.extend(attempts.into_iter().map(|attempt| attempt.event));
    Ok((events, messages))
}

pub(crate) async fn tasks(pool: &PgPool, head: &Head) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(TASKS)
        .bind(head.job)
        .bind(head.row_id)
        .fetch_all(pool)
        .await
}
