//! All SQL of the service.
//!
//! Lock order: a protocol before its events; the worker's settling follows it, too. A state changes only by a
//! [`Transition`], and only if the protocol is still in the state and the try that the caller read.

use std::time::Duration;

use postrider_inspect::timeline::Event;
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::{Criterion, ProtocolView, Status, Step, Summary, Transition};

const INSERT: &str = "
insert into protocols.protocol (id, title, document_key, media_type, metadata) values ($1, $2, $3, $4, $5)";

/// A try has one event of each type.
const INSERT_EVENT: &str = "
insert into protocols.outbox (protocol_id, try, event_type) values ($1, $2, $3)
on conflict (protocol_id, try, event_type) do nothing";

const GET: &str = "
select id, title, status, try as try_no, error_reason, metadata, coalesce(criteria, '[]') as criteria,
       created_at, updated_at, document_key, media_type
from protocols.protocol where id = $1";

/// Index: protocol_seq_key, backwards.
const LIST: &str = "
select seq, id, title, status, error_reason, created_at, updated_at from protocols.protocol
where seq < coalesce($1, 9223372036854775807) and status <> 'archived'
order by seq desc limit $2";

/// Index: protocol_status, backwards.
const LIST_BY_STATUS: &str = "
select seq, id, title, status, error_reason, created_at, updated_at from protocols.protocol
where seq < coalesce($1, 9223372036854775807) and status = $3
order by seq desc limit $2";

const LOCK: &str = "
select seq, status, try as try_no, now() as now,
       status = 'dead_letter' and updated_at <= now() - make_interval(secs => $2) as archivable
from protocols.protocol where id = $1 for update";

/// The only statement that changes a state. `$6`: metadata keys to remove; `$7`: metadata to add; `$8`: replace the
/// criteria by `$9`; `$10`: 1 starts the next try; `$11`: keep the error reason.
const APPLY: &str = "
update protocols.protocol
set status = $4, error_reason = case when $11 then error_reason else $5 end, metadata = (metadata - $6::text[]) || $7::jsonb,
    criteria = case when $8 then $9 else criteria end, try = try + $10, updated_at = now()
where id = $1 and try = $2 and status = $3";

/// What a step needs, under the protocol's lock. The event must still be leased: one that was retired, or rescued and
/// snoozed by another worker, starts nothing.
const LOCK_FOR_STEP: &str = "
select p.status, p.try as try_no, p.title, p.document_key, p.media_type,
       case when $3 then p.criteria end as criteria,
       exists (select 1 from protocols.outbox o where o.id = $2 and o.status = 'processing') as leased
from protocols.protocol p where p.id = $1 for update of p";

/// Index: outbox_once.
const UNPUBLISHED_EVENTS: &str = "
select id from protocols.outbox where protocol_id = $1 and status <> 'published' order by id";

/// Index: protocol_dead.
const ARCHIVABLE: &str = "
select id from protocols.protocol
where status = 'dead_letter' and updated_at <= now() - make_interval(secs => $1)
order by updated_at limit $2";

/// Index: outbox_finished. Dead letters stay until they are redriven or archived.
const DELETE_PUBLISHED: &str = "
delete from protocols.outbox where ctid = any(array(
    select ctid from protocols.outbox
    where finished_at < now() - make_interval(secs => $1) and status = 'published'
    order by finished_at limit $2 for update skip locked))";

const EXISTING: &str = "select id from protocols.protocol where id = any($1)";

const COUNTS: &str = "select status, count(*) from protocols.protocol group by status";

const TIMELINE_STATE: &str = "select p.status from protocols.protocol p where p.id = $1";

const TIMELINE_STEPS: &str =
    "select o.id from protocols.outbox o where o.protocol_id = $1 order by o.id desc limit 100";

const TIMELINE_EVENTS: &str = "
select * from (
    select p.created_at as at, 'uploaded' as what, p.title as detail, null::boolean as good
    from protocols.protocol p where p.id = $1
    union all
    select p.updated_at, p.status, p.error_reason, case when p.error_reason is not null then false end
    from protocols.protocol p where p.id = $1 and p.updated_at > p.created_at
    union all
    select e.* from protocols.outbox o,
    lateral (values
        (o.created_at, lower(o.event_type) || ' of try ' || o.try, null, null::boolean),
        (o.finished_at, lower(o.event_type) || case o.status when 'published' then ' done' else ' dead' end, o.error_code,
         o.status = 'published')) e(at, what, detail, good)
    where o.id = any($2)) e
where e.at is not null order by e.at";

/// A protocol to insert.
#[derive(Debug)]
pub(crate) struct NewProtocol<'a> {
    pub id: Uuid,
    pub title: &'a str,
    pub document_key: &'a str,
    pub media_type: &'static str,
    pub metadata: Value,
}

/// A row of `protocols.protocol`.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct ProtocolRow {
    id: Uuid,
    title: String,
    pub status: Status,
    try_no: i32,
    error_reason: Option<String>,
    metadata: Value,
    criteria: sqlx::types::Json<Vec<Criterion>>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    pub document_key: String,
    pub media_type: String,
}

impl From<ProtocolRow> for ProtocolView {
    fn from(row: ProtocolRow) -> Self {
        Self {
            id: row.id,
            title: row.title,
            status: row.status,
            try_no: row.try_no,
            error_reason: row.error_reason,
            metadata: row.metadata,
            criteria: row.criteria.0,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

#[derive(sqlx::FromRow)]
struct SummaryRow {
    seq: i64,
    id: Uuid,
    title: String,
    status: Status,
    error_reason: Option<String>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

/// A protocol that is locked for a transition.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct LockedProtocol {
    pub seq: i64,
    pub status: Status,
    pub try_no: i32,
    pub now: OffsetDateTime,
    pub archivable: bool,
}

/// The input of a step.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct StepInput {
    pub status: Status,
    pub try_no: i32,
    pub title: String,
    pub document_key: String,
    pub media_type: String,
    pub criteria: Option<sqlx::types::Json<Vec<Criterion>>>,
    pub leased: bool,
}

/// What happens to `error_reason`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum ErrorReason {
    /// Clear it.
    #[default]
    Clear,
    /// Keep it.
    Keep,
    /// Replace it.
    Set(String),
}

/// What changes along with a state.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// What happens to the error reason.
    pub reason: ErrorReason,
    /// Metadata keys to remove.
    pub remove_metadata: &'static [&'static str],
    /// Metadata to add; an object.
    pub add_metadata: Option<Value>,
    /// New criteria; `Some(None)` removes them.
    pub criteria: Option<Option<Value>>,
    /// Start the next try.
    pub next_try: bool,
}

pub(crate) async fn insert(
    tx: &mut PgConnection,
    new: &NewProtocol<'_>,
) -> Result<(), sqlx::Error> {
    sqlx::query(INSERT)
        .bind(new.id)
        .bind(new.title)
        .bind(new.document_key)
        .bind(new.media_type)
        .bind(&new.metadata)
        .execute(&mut *tx)
        .await?;
    enqueue(tx, new.id, 1, Step::Extraction).await
}

/// Enqueues the event for a step of this try.
pub(crate) async fn enqueue(
    tx: &mut PgConnection,
    id: Uuid,
    try_no: i32,
    step: Step,
) -> Result<(), sqlx::Error> {
    sqlx::query(INSERT_EVENT)
        .bind(id)
        .bind(try_no)
        .bind(step.event())
        .execute(tx)
        .await
        .map(drop)
}

pub(crate) async fn get(pool: &PgPool, id: Uuid) -> Result<Option<ProtocolRow>, sqlx::Error> {
    sqlx::query_as(GET).bind(id).fetch_optional(pool).await
}

/// Protocols before this `seq`, newest first, each with its `seq`. Without a status: all but the archived ones.
pub(crate) async fn list(
    pool: &PgPool,
    status: Option<Status>,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<(i64, Summary)>, sqlx::Error> {
    let query = match status {
        None => sqlx::query_as(LIST).bind(before).bind(limit),
        Some(status) => sqlx::query_as(LIST_BY_STATUS)
            .bind(before)
            .bind(limit)
            .bind(status),
    };
    let rows: Vec<SummaryRow> = query.fetch_all(pool).await?;
    let summary = |row: SummaryRow| {
        let summary = Summary {
            id: row.id,
            title: row.title,
            status: row.status,
            error_reason: row.error_reason,
            created_at: row.created_at,
            updated_at: row.updated_at,
        };
        (row.seq, summary)
    };
    Ok(rows.into_iter().map(summary).collect())
}

/// Locks a protocol for a transition.
pub(crate) async fn lock(
    tx: &mut PgConnection,
    id: Uuid,
    archive_after: Duration,
) -> Result<Option<LockedProtocol>, sqlx::Error> {
    sqlx::query_as(LOCK)
        .bind(id)
        .bind(archive_after.as_secs_f64())
        .fetch_optional(tx)
        .await
}

/// Locks a protocol for the step that `event` triggers.
pub(crate) async fn lock_for_step(
    tx: &mut PgConnection,
    id: Uuid,
    event: i64,
    step: Step,
) -> Result<Option<StepInput>, sqlx::Error> {
    sqlx::query_as(LOCK_FOR_STEP)
        .bind(id)
        .bind(event)
        .bind(step == Step::Grounding)
        .fetch_optional(tx)
        .await
}

/// Applies a transition if the protocol is still in its first state and in this try; false if not.
pub(crate) async fn apply(
    tx: &mut PgConnection,
    id: Uuid,
    try_no: i32,
    transition: Transition,
    change: Change,
) -> Result<bool, sqlx::Error> {
    let add_metadata = change
        .add_metadata
        .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let keep = change.reason == ErrorReason::Keep;
    let reason = match change.reason {
        ErrorReason::Set(reason) => Some(reason),
        ErrorReason::Clear | ErrorReason::Keep => None,
    };
    let updated = sqlx::query(APPLY)
        .bind(id)
        .bind(try_no)
        .bind(transition.from())
        .bind(transition.to())
        .bind(reason)
        .bind(change.remove_metadata)
        .bind(add_metadata)
        .bind(change.criteria.is_some())
        .bind(change.criteria.flatten())
        .bind(i32::from(change.next_try))
        .bind(keep)
        .execute(tx)
        .await?;
    Ok(updated.rows_affected() == 1)
}

/// The events of a protocol that are waiting, leased or dead.
pub(crate) async fn unpublished_events(
    tx: &mut PgConnection,
    id: Uuid,
) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(UNPUBLISHED_EVENTS)
        .bind(id)
        .fetch_all(tx)
        .await
}

/// Dead letters that have not changed for this long, oldest first.
pub(crate) async fn archivable(
    pool: &PgPool,
    after: Duration,
    limit: i64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(ARCHIVABLE)
        .bind(after.as_secs_f64())
        .bind(limit)
        .fetch_all(pool)
        .await
}

/// Deletes up to `limit` events that were published this long ago; returns the number deleted.
pub(crate) async fn delete_published(
    pool: &PgPool,
    retention: Duration,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let deleted = sqlx::query(DELETE_PUBLISHED)
        .bind(retention.as_secs_f64())
        .bind(limit)
        .execute(pool)
        .await?;
    Ok(deleted.rows_affected())
}

/// The subset of these ids that are protocols.
pub(crate) async fn existing(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(EXISTING).bind(ids).fetch_all(pool).await
}

/// The number of protocols by status.
pub(crate) async fn counts(pool: &PgPool) -> Result<Vec<(Status, i64)>, sqlx::Error> {
    sqlx::query_as(COUNTS).fetch_all(pool).await
}

/// The state of a protocol, for its timeline.
pub(crate) async fn timeline_state(pool: &PgPool, id: Uuid) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(TIMELINE_STATE)
        .bind(id)
        .fetch_optional(pool)
        .await
}

/// The last events of a protocol.
pub(crate) async fn timeline_steps(pool: &PgPool, id: Uuid) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(TIMELINE_STEPS)
        .bind(id)
        .fetch_all(pool)
        .await
}

/// What happened to a protocol and to these events of it.
pub(crate) async fn timeline_events(
    pool: &PgPool,
    id: Uuid,
    steps: &[i64],
) -> Result<Vec<Event>, sqlx::Error> {
    sqlx::query_as(TIMELINE_EVENTS)
        .bind(id)
        .bind(steps)
        .fetch_all(pool)
        .await
}
