//! All SQL of the orchestrator. The wallet's is in [`crate::wallet`].

use std::time::Duration;

use postrider::{Error, audit, lease::Operator};
use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::{Money, Outcome, Payment, PaymentView, Status, TraceContext};

/// Request and outbox row in one statement, hence in one transaction. Each uuid comes once.
const INSERT: &str = "
with asked as materialized (
    select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
        a(uuid, account_id, amount, currency, description, payload, trace, tracestate)),
new as (
    insert into payments.request (uuid, account_id, amount, currency, description, trace)
    select uuid, account_id, amount::numeric, currency, description, trace from asked order by uuid
    on conflict (uuid) do nothing
    returning uuid),
message as (
    insert into payments.outbox (uuid, payload, trace, tracestate)
    select a.uuid, a.payload::jsonb, a.trace, a.tracestate from asked a join new using (uuid))
select uuid from new";

/// A pending request whose outbox row is gone had it archived, which only a message that was given up can be.
const VIEWS: &str = "
select r.seq, r.uuid, r.account_id, r.amount::text as amount, r.currency, r.description, r.status, r.reason,
       r.created_at, r.updated_at, coalesce(o.status = 'EXHAUSTED', true) as exhausted
from payments.request r left join payments.outbox o using (uuid)
where r.uuid = any($1)";

/// Index: request_seq, backwards; for a status that few have, request_pending serves the reconciliation instead.
const LIST: &str = "
select r.seq, r.uuid, r.account_id, r.amount::text as amount, r.currency, r.description, r.status, r.reason,
       r.created_at, r.updated_at, coalesce(o.status = 'EXHAUSTED', true) as exhausted
from payments.request r left join payments.outbox o using (uuid)
where r.seq < coalesce($1, 9223372036854775807)
  and ($2::text is null or r.status = $2)
  and ($3::text is null or r.account_id = $3)
order by r.seq desc limit $4";

/// Only what is pending ends; what ended stays as it is.
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

/// Index: outbox_finished. A row whose request is stuck stays, to say why.
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

/// A payment as the orchestrator alone knows it.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its place in lists.
    pub seq: i64,
    /// Was its message given up?
    pub exhausted: bool,
    /// Without the reason of a pending one.
    pub view: PaymentView,
}

impl From<Row> for Known {
    fn from(row: Row) -> Self {
        let amount = Money::stored(&row.amount, &row.currency);
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

/// Which payments are listed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Filter {
    /// How they stand.
    pub status: Option<Status>,
    /// Of which account.
    pub account_id: Option<String>,
}

/// A pending request that is old enough to be looked at.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct StuckRequest {
    pub seq: i64,
    pub uuid: Uuid,
    pub created_at: OffsetDateTime,
    pub exhausted: bool,
}

/// How the orchestrator took what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The payment has ended so.
    Settled,
    /// It had ended so before.
    Repeated,
    /// It had ended the other way.
    Contradicted(Status),
    /// No such payment.
    Unknown,
}

/// Writes new payments; says which were new.
pub(crate) async fn insert(pool: &PgPool, payments: &[&Payment]) -> Result<Vec<Uuid>, Error> {
    let column = |of: fn(&Payment) -> String| -> Vec<String> {
        payments.iter().map(|payment| of(payment)).collect()
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
        .map(|payment| serde_json::to_string(&payment.notice()))
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
        .fetch_all(pool)
        .await?)
}

/// What is known of these payments, in no particular order.
pub(crate) async fn known(pool: &PgPool, uuids: &[Uuid]) -> Result<Vec<Known>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(VIEWS).bind(uuids).fetch_all(pool).await?;
    Ok(rows.into_iter().map(Known::from).collect())
}

/// The newest first, older than the place `before`.
pub(crate) async fn list(
    pool: &PgPool,
    filter: &Filter,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<Known>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(LIST)
        .bind(before)
        .bind(filter.status)
        .bind(&filter.account_id)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(Known::from).collect())
}

/// Settles a pending payment as the wallet told.
pub(crate) async fn settle(
    pool: &PgPool,
    uuid: Uuid,
    outcome: Outcome,
    reason: Option<&str>,
) -> Result<Told, sqlx::Error> {
    let settled = sqlx::query(SETTLE)
        .bind(uuid)
        .bind(outcome)
        .bind(reason)
        .execute(pool)
        .await?;
    if settled.rows_affected() > 0 {
        return Ok(Told::Settled);
    }
    let status: Option<Status> = sqlx::query_scalar(STATUS)
        .bind(uuid)
        .fetch_optional(pool)
        .await?;
    Ok(match status {
        None => Told::Unknown,
        Some(status) if status == Status::from(outcome) => Told::Repeated,
        Some(status) => Told::Contradicted(status),
    })
}

/// The oldest pending requests past this place that are at least this old.
pub(crate) async fn stuck(
    pool: &PgPool,
    after: Duration,
    past: (OffsetDateTime, i64),
    limit: i64,
) -> Result<Vec<StuckRequest>, sqlx::Error> {
    sqlx::query_as(STUCK)
        .bind(after.as_secs_f64())
        .bind(past.0)
        .bind(past.1)
        .bind(limit)
        .fetch_all(pool)
        .await
}

/// Settles those of these requests that are still pending, with an entry in the audit; says which they were.
pub(crate) async fn reconcile(
    pool: &PgPool,
    operator: &Operator,
    verdicts: &[(Uuid, Outcome, Option<String>)],
) -> Result<Vec<Uuid>, Error> {
    let uuids: Vec<Uuid> = verdicts.iter().map(|verdict| verdict.0).collect();
    let outcomes: Vec<&str> = verdicts.iter().map(|verdict| verdict.1.as_str()).collect();
    let reasons: Vec<Option<&str>> = verdicts.iter().map(|v| v.2.as_deref()).collect();
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
    write_down(&mut tx, operator, &items).await?;
    postrider_crashpoint::point!("reconcile.before_commit")?;
    tx.commit().await?;
    Ok(settled.into_iter().map(|settled| settled.0).collect())
}

async fn write_down(
    tx: &mut PgConnection,
    operator: &Operator,
    items: &[i64],
) -> Result<(), Error> {
    let deed = audit::AuditEntry {
        action: "reconcile",
        table: "payments.request",
        items,
    };
    audit::record(tx, operator, deed).await
}

/// Removes up to `limit` published rows that may go; says how many went.
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

/// How many requests are pending, and the age of the oldest in seconds.
pub(crate) async fn pending(pool: &PgPool) -> Result<(i64, f64), sqlx::Error> {
    sqlx::query_as(PENDING).fetch_one(pool).await
}
