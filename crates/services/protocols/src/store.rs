//! All SQL of the slice.
//!
//! Whoever locks both a protocol and its events locks the protocol first: the worker's settling does so, too. A state
//! changes only by a [`Move`], and only if the protocol is still in the state and the try that the caller has seen.

use std::time::Duration;

use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::{Criterion, Move, ProtocolView, Status, Step, Summary};

const INSERT: &str = "
insert into protocols.protocol (id, title, document_key, media_type, metadata) values ($1, $2, $3, $4, $5)";

/// A second event of the same kind for the same try is the same event.
const INSERT_EVENT: &str = "
insert into protocols.outbox (protocol_id, try, event_type) values ($1, $2, $3)
on conflict (protocol_id, try, event_type) do nothing";

const VIEW: &str = "
select id, title, status, try as try_no, error_reason, metadata, coalesce(criteria, '[]') as criteria,
       created_at, updated_at, document_key, media_type
from protocols.protocol where id = $1";

/// Index: the unique one on seq, backwards.
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

/// The one statement that changes a state. `$6`: keys of metadata that go; `$7`: those that come; `$8`: whether the
/// criteria are replaced by `$9`; `$10`: 1 begins the next try; `$11`: the reason stays as it is.
const MOVE: &str = "
update protocols.protocol
set status = $4, error_reason = case when $11 then error_reason else $5 end, metadata = (metadata - $6::text[]) || $7::jsonb,
    criteria = case when $8 then $9 else criteria end, try = try + $10, updated_at = now()
where id = $1 and try = $2 and status = $3";

/// What a step needs, under the protocol's lock. The event must still be held by a worker: one that was retired, or
/// taken over and put off by another, begins nothing.
const LOCK_FOR_STEP: &str = "
select p.status, p.try as try_no, p.title, p.document_key, p.media_type,
       case when $3 then p.criteria end as criteria,
       exists (select 1 from protocols.outbox o where o.id = $2 and o.status = 'processing') as held
from protocols.protocol p where p.id = $1 for update of p";

/// Index: outbox_once.
const EVENTS: &str = "
select id from protocols.outbox where protocol_id = $1 and status <> 'published' order by id";

/// Index: protocol_dead.
const ARCHIVABLE: &str = "
select id from protocols.protocol
where status = 'dead_letter' and updated_at <= now() - make_interval(secs => $1)
order by updated_at limit $2";

/// Index: outbox_finished. Dead letters stay until a person or the archive takes them.
const CLEAN: &str = "
delete from protocols.outbox where ctid = any(array(
    select ctid from protocols.outbox
    where finished_at < now() - make_interval(secs => $1) and status = 'published'
    order by finished_at limit $2 for update skip locked))";

const KNOWN: &str = "select id from protocols.protocol where id = any($1)";

const COUNTS: &str = "select status, count(*) from protocols.protocol group by status";

/// A protocol to be.
#[derive(Debug)]
pub(crate) struct New<'a> {
    pub id: Uuid,
    pub title: &'a str,
    pub document_key: &'a str,
    pub media_type: &'static str,
    pub metadata: Value,
}

/// A protocol with all that is known of it, and where its document is.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Stored {
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

impl From<Stored> for ProtocolView {
    fn from(row: Stored) -> Self {
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
struct Listed {
    seq: i64,
    id: Uuid,
    title: String,
    status: Status,
    error_reason: Option<String>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

/// What an operation on one protocol must know before it changes anything.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct Standing {
    pub seq: i64,
    pub status: Status,
    pub try_no: i32,
    pub now: OffsetDateTime,
    pub archivable: bool,
}

/// What a step works on.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Work {
    pub status: Status,
    pub try_no: i32,
    pub title: String,
    pub document_key: String,
    pub media_type: String,
    pub criteria: Option<sqlx::types::Json<Vec<Criterion>>>,
    pub held: bool,
}

/// What becomes of `error_reason`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It goes: nothing is wrong any more.
    #[default]
    Clear,
    /// It stays as it is.
    Keep,
    /// This is why.
    Set(String),
}

/// What changes together with a state.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// What becomes of the reason.
    pub reason: Reason,
    /// Keys of the metadata that go.
    pub forget: &'static [&'static str],
    /// Keys of the metadata that come; an object.
    pub remember: Option<Value>,
    /// New criteria; `Some(None)` takes them away.
    pub criteria: Option<Option<Value>>,
    /// The next try begins.
    pub next_try: bool,
}

pub(crate) async fn insert(tx: &mut PgConnection, new: &New<'_>) -> Result<(), sqlx::Error> {
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

/// The event that asks for a step of this try.
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

pub(crate) async fn view(pool: &PgPool, id: Uuid) -> Result<Option<Stored>, sqlx::Error> {
    sqlx::query_as(VIEW).bind(id).fetch_optional(pool).await
}

/// The newest first, older than the row `before`; each with its place. Without a status, all but the archived.
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
    let rows: Vec<Listed> = query.fetch_all(pool).await?;
    let summary = |row: Listed| {
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

/// Locks a protocol against everybody else who would move it.
pub(crate) async fn lock(
    tx: &mut PgConnection,
    id: Uuid,
    archive_after: Duration,
) -> Result<Option<Standing>, sqlx::Error> {
    sqlx::query_as(LOCK)
        .bind(id)
        .bind(archive_after.as_secs_f64())
        .fetch_optional(tx)
        .await
}

/// Locks a protocol for a step that the event `event` asks for.
pub(crate) async fn lock_for_step(
    tx: &mut PgConnection,
    id: Uuid,
    event: i64,
    step: Step,
) -> Result<Option<Work>, sqlx::Error> {
    sqlx::query_as(LOCK_FOR_STEP)
        .bind(id)
        .bind(event)
        .bind(step == Step::Grounding)
        .fetch_optional(tx)
        .await
}

/// Makes the move, if the protocol still stands where it begins and in this try; says whether it did.
pub(crate) async fn apply(
    tx: &mut PgConnection,
    id: Uuid,
    try_no: i32,
    step: Move,
    change: Change,
) -> Result<bool, sqlx::Error> {
    let remember = change
        .remember
        .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let keep = change.reason == Reason::Keep;
    let reason = match change.reason {
        Reason::Set(reason) => Some(reason),
        Reason::Clear | Reason::Keep => None,
    };
    let moved = sqlx::query(MOVE)
        .bind(id)
        .bind(try_no)
        .bind(step.from())
        .bind(step.to())
        .bind(reason)
        .bind(change.forget)
        .bind(remember)
        .bind(change.criteria.is_some())
        .bind(change.criteria.flatten())
        .bind(i32::from(change.next_try))
        .bind(keep)
        .execute(tx)
        .await?;
    Ok(moved.rows_affected() == 1)
}

/// The events of a protocol that wait, run or were given up.
pub(crate) async fn events(tx: &mut PgConnection, id: Uuid) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(EVENTS).bind(id).fetch_all(tx).await
}

/// Dead letters that nobody touched for so long, the oldest first.
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

/// Removes up to `limit` events that were published so long ago; says how many went.
pub(crate) async fn clean(
    pool: &PgPool,
    retention: Duration,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let gone = sqlx::query(CLEAN)
        .bind(retention.as_secs_f64())
        .bind(limit)
        .execute(pool)
        .await?;
    Ok(gone.rows_affected())
}

/// Those of these ids that are protocols.
pub(crate) async fn known(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(KNOWN).bind(ids).fetch_all(pool).await
}

/// How many protocols stand where.
pub(crate) async fn counts(pool: &PgPool) -> Result<Vec<(Status, i64)>, sqlx::Error> {
    sqlx::query_as(COUNTS).fetch_all(pool).await
}
