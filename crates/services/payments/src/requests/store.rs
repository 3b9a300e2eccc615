//! All SQL of the requests' side.

use std::time::Duration;

use postrider::{Error, audit, lease::Operator};
use postrider_inspect::timeline::Event;
use serde::Serialize;
use sqlx::{PgConnection, PgExecutor, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::{Money, Outcome, Payment, PaymentView, Status, TraceContext};

/// Request and outbox row in one statement, hence in one transaction. The uuids are distinct.
const INSERT: &str = "
with wanted as materialized (
    select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
        w(uuid, account_id, amount, currency, description, payload, trace, tracestate)),
new as (
    insert into payments.request (uuid, account_id, amount, currency, description, trace)
    select uuid, account_id, amount::numeric, currency, description, trace from wanted order by uuid
    on conflict (uuid) do nothing
    returning uuid),
message as (
    insert into payments.outbox (uuid, payload, trace, tracestate)
    select w.uuid, w.payload::jsonb, w.trace, w.tracestate from wanted w join new using (uuid))
select uuid from new";

/// If the outbox row of a pending request is gone, it was archived, which happens to exhausted messages only.
const GET: &str = "
select r.seq, r.uuid, r.account_id, r.amount::text as amount, r.currency, r.description, r.status, r.reason,
       r.created_at, r.updated_at, coalesce(o.status = 'EXHAUSTED', true) as exhausted
from payments.request r left join payments.outbox o using (uuid)
where r.uuid = any($1)";

/// Index: request_seq, backwards.
const LIST: &str = "
select r.seq, r.uuid, r.account_id, r.amount::text as amount, r.currency, r.description, r.status, r.reason,
       r.created_at, r.updated_at, coalesce(o.status = 'EXHAUSTED', true) as exhausted
from payments.request r left join payments.outbox o using (uuid)
where r.seq < coalesce($1, 9223372036854775807)
  and ($2::text is null or r.status = $2)
  and ($3::text is null or r.account_id = $3)
order by r.seq desc limit $4";

/// A settled payment never changes.
const SETTLE: &str = "
update payments.request set status = $2, reason = $3, settled_by = 'callback', updated_at = clock_timestamp()
where uuid = $1 and status = 'PENDING'";

const STATUS: &str = "select status from payments.request where uuid = $1";

/// Index: request_pending.
const STUCK: &str = "
select r.seq, r.uuid, r.created_at, coalesce(o.status = 'EXHAUSTED', true) as exhausted
from payments.request r left join payments.outbox o using (uuid)
where r.status = 'PENDING' and r.created_at <= now() - make_interval(secs => $1)
  and (r.created_at, r.seq) > ($2, $3)
order by r.created_at, r.seq limit $4";

/// Sorted, so that two reconciliations wait for each other instead of deadlocking.
const LOCK_STUCK: &str = "
select uuid from payments.request where uuid = any($1) and status = 'PENDING' order by uuid for no key update";

const RECONCILE: &str = "
update payments.request r
set status = u.status, reason = u.reason, settled_by = 'reconcile', updated_at = clock_timestamp()
from unnest($1::uuid[], $2::text[], $3::text[]) u(uuid, status, reason)
where r.uuid = u.uuid and r.status = 'PENDING'
returning r.uuid, r.seq";

/// Index: outbox_finished. The row of a stuck request stays, to show why it is stuck.
const CLEAN: &str = "
delete from payments.outbox where ctid = any(array(
    select o.ctid from payments.outbox o
    where o.finished_at < now() - make_interval(secs => $1) and o.status = 'PUBLISHED'
      and not exists (select from payments.request r where r.uuid = o.uuid and r.status = 'PENDING')
    order by o.finished_at limit $2 for update of o skip locked))";

/// Index: request_pending.
const PENDING: &str = "
select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8
from payments.request where status = 'PENDING'";

const TIMELINE_HEAD: &str = "
select r.status, o.id from payments.request r left join payments.outbox o using (uuid) where r.uuid = $1";

/// Index: request_trace.
const BY_TRACE: &str = "
select uuid from payments.request where trace is not null and substr(trace, 4, 32) = $1 order by seq limit $2";

const TIMELINE_EVENTS: &str = "
select e.* from payments.request r left join payments.outbox o using (uuid),
lateral (values
    (r.created_at, 'requested', r.amount || ' ' || r.currency || ' from ' || r.account_id, null::boolean),
    (o.finished_at, case o.status when 'PUBLISHED' then 'message published' else 'publishing failed' end,
     o.last_error_code, o.status = 'PUBLISHED'),
    (case when r.status <> 'PENDING' then r.updated_at end, 'settled: ' || r.status,
     concat_ws(', ', r.reason, 'by ' || r.settled_by), r.status = 'SUCCEED')) e(at, what, detail, good)
where r.uuid = $1 and e.at is not null order by e.at";

#[derive(Debug, sqlx::FromRow)]
struct Row {
    seq: i64,
    uuid: Uuid,
    account_id: String,
    amount: String,
    currency: String,
    description: Option<String>,
    status: Status,
    reason: Option<String>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    exhausted: bool,
}

/// A payment as the requests' side knows it.
#[derive(Debug)]
pub(crate) struct StoredPayment {
    /// Sort key of listings.
    pub seq: i64,
    /// Publishing its message failed for good.
    pub exhausted: bool,
    /// The view, without the reason of a pending payment.
    pub view: PaymentView,
}

impl From<Row> for StoredPayment {
    fn from(row: Row) -> Self {
        let amount = Money::from_stored(&row.amount, &row.currency);
        Self {
            seq: row.seq,
            exhausted: row.exhausted,
            view: PaymentView {
                uuid: row.uuid,
                account_id: row.account_id,
                amount: amount.map_or(row.amount, |money| money.to_string()),
                currency: row.currency,
                description: row.description,
                status: row.status,
                reason: row.reason,
                created_at: row.created_at,
                updated_at: row.updated_at,
            },
        }
    }
}

/// Which payments to list.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Filter {
    /// Only payments with this status.
    pub status: Option<Status>,
    /// Only payments from this account.
    pub account_id: Option<String>,
}

/// A pending request that is old enough to be reconciled.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct PendingRequest {
    pub seq: i64,
    pub uuid: Uuid,
    pub created_at: OffsetDateTime,
    pub exhausted: bool,
}

/// The result of settling a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleOutcome {
    /// The payment is settled now.
    Settled,
    /// It was settled with the same outcome before.
    Repeated,
    /// It was settled with the opposite outcome before.
    Conflict(Status),
    /// There is no such payment.
    NotFound,
}

/// Inserts the payments whose uuids are new; returns those uuids.
pub(crate) async fn insert(
    connection: &mut PgConnection,
    payments: &[&Payment],
) -> Result<Vec<Uuid>, Error> {
    let column = |value: fn(&Payment) -> String| -> Vec<String> {
        payments.iter().map(|payment| value(payment)).collect()
    };
    let uuids: Vec<Uuid> = payments.iter().map(|payment| payment.uuid).collect();
    let descriptions: Vec<Option<&str>> = payments
        .iter()
        .map(|payment| payment.description.as_deref())
        .collect();
    let traces = payments.iter().map(|payment| payment.trace.as_ref());
    let (parents, states) = TraceContext::columns(traces);
    let messages: Vec<String> = payments
        .iter()
        .map(|payment| serde_json::to_string(&payment.message()))
        .collect::<Result<_, _>>()
        .map_err(|error| Error::invalid("payment", error.to_string()))?;
    Ok(sqlx::query_scalar(INSERT)
        .bind(uuids)
        .bind(column(|payment| payment.account_id.clone()))
        .bind(column(|payment| payment.money.to_string()))
        .bind(column(|payment| payment.money.currency.to_string()))
        .bind(descriptions)
        .bind(messages)
        .bind(parents)
        .bind(states)
        .fetch_all(connection)
        .await?)
}

/// The payments with these uuids, in no particular order.
pub(crate) async fn get(
    executor: impl PgExecutor<'_>,
    uuids: &[Uuid],
) -> Result<Vec<StoredPayment>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(GET).bind(uuids).fetch_all(executor).await?;
    Ok(rows.into_iter().map(StoredPayment::from).collect())
}

/// Payments with a `seq` below `before`, newest first.
pub(crate) async fn list(
    pool: &PgPool,
    filter: &Filter,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<StoredPayment>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(LIST)
        .bind(before)
        .bind(filter.status)
        .bind(&filter.account_id)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(StoredPayment::from).collect())
}

/// Settles a pending payment.
pub(crate) async fn settle(
    pool: &PgPool,
    uuid: Uuid,
    outcome: Outcome,
    reason: Option<&str>,
) -> Result<SettleOutcome, sqlx::Error> {
    let settled = sqlx::query(SETTLE)
        .bind(uuid)
        .bind(outcome)
        .bind(reason)
        .execute(pool)
        .await?;
    if settled.rows_affected() > 0 {
        return Ok(SettleOutcome::Settled);
    }
    let status: Option<Status> = sqlx::query_scalar(STATUS)
        .bind(uuid)
        .fetch_optional(pool)
        .await?;
    Ok(match status {
        None => SettleOutcome::NotFound,
        Some(status) if status == Status::from(outcome) => SettleOutcome::Repeated,
        Some(status) => SettleOutcome::Conflict(status),
    })
}

/// Requests that have been pending for at least `min_age`, oldest first, from the position `after`.
pub(crate) async fn stuck(
    pool: &PgPool,
    min_age: Duration,
    after: (OffsetDateTime, i64),
    limit: i64,
) -> Result<Vec<PendingRequest>, sqlx::Error> {
    sqlx::query_as(STUCK)
        .bind(min_age.as_secs_f64())
        .bind(after.0)
        .bind(after.1)
        .bind(limit)
        .fetch_all(pool)
        .await
}

/// Settles those of these requests that are still pending, with an audit entry; returns their uuids.
pub(crate) async fn reconcile(
    pool: &PgPool,
    operator: &Operator,
    results: &[(Uuid, Outcome, Option<String>)],
) -> Result<Vec<Uuid>, Error> {
    let uuids: Vec<Uuid> = results.iter().map(|result| result.0).collect();
    let outcomes: Vec<&str> = results.iter().map(|result| result.1.as_str()).collect();
    let reasons: Vec<Option<&str>> = results.iter().map(|result| result.2.as_deref()).collect();
    let mut tx = pool.begin().await?;
    sqlx::query(LOCK_STUCK)
        .bind(&uuids)
        .execute(&mut *tx)
        .await?;
    let settled: Vec<(Uuid, i64)> = sqlx::query_as(RECONCILE)
        .bind(uuids)
        .bind(outcomes)
        .bind(reasons)
        .fetch_all(&mut *tx)
        .await?;
    let items: Vec<i64> = settled.iter().map(|settled| settled.1).collect();
    let entry = audit::AuditEntry {
        action: "reconcile",
        table: "payments.request",
        items: &items,
    };
    audit::record(&mut tx, operator, entry).await?;
    postrider_crashpoint::point!("reconcile.before_commit")?;
    tx.commit().await?;
    Ok(settled.into_iter().map(|settled| settled.0).collect())
}

/// Deletes up to `limit` published rows whose retention is over; returns how many.
pub(crate) async fn clean(
    pool: &PgPool,
    retention: Duration,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let deleted = sqlx::query(CLEAN)
        .bind(retention.as_secs_f64())
        .bind(limit)
        .execute(pool)
        .await?;
    Ok(deleted.rows_affected())
}

/// The number of pending requests, and the age of the oldest in seconds.
pub(crate) async fn pending(pool: &PgPool) -> Result<(i64, f64), sqlx::Error> {
    sqlx::query_as(PENDING).fetch_one(pool).await
}

/// The uuids of the payments of a W3C trace.
pub(crate) async fn by_trace(
    pool: &PgPool,
    trace_id: Uuid,
    limit: i64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(BY_TRACE)
        .bind(trace_id.simple().to_string())
        .bind(limit)
        .fetch_all(pool)
        .await
}

/// A payment's status and the id of its outbox row.
pub(crate) async fn timeline_head(
    pool: &PgPool,
    uuid: Uuid,
) -> Result<Option<(String, Option<i64>)>, sqlx::Error> {
    sqlx::query_as(TIMELINE_HEAD)
        .bind(uuid)
        .fetch_optional(pool)
        .await
}

/// What happened to a payment on this side, oldest first.
pub(crate) async fn timeline_events(pool: &PgPool, uuid: Uuid) -> Result<Vec<Event>, sqlx::Error> {
    sqlx::query_as(TIMELINE_EVENTS)
        .bind(uuid)
        .fetch_all(pool)
        .await
}
