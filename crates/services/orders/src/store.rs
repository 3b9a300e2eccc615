//! All SQL of the service, except the paper broker's own.
//!
//! Lock order: an order's ledger entry before its row. The worker's settle follows it too.

use std::{collections::HashSet, time::Duration};

use postrider::{failure::Failure, ledger::Key};
use postrider_inspect::timeline::Event;
use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, PgPool};
use time::OffsetDateTime;

use crate::{
    model::{LedgerStatus, Order, OrderView, OutboxStatus, OutboxView},
    settings::Ordering,
};

/// Ledger entries and outbox rows in one statement: a transaction's extra round trips would cost more than the work
/// itself. Sorted, so that two batches with the same keys wait for each other instead of deadlocking.
const ACCEPT: &str = "
with lock_timeout as materialized (select set_config('lock_timeout', $5, true)),
     wanted as materialized (
        select u.* from lock_timeout, unnest($1::text[], $2::text[], $3::bytea[], $4::timestamptz[]) u(key, request, digest, expires_at)
        order by u.key),
     first as (
        insert into postrider.ledger (scope, key, digest) select 'orders', w.key, w.digest from wanted w
        on conflict (scope, key) do nothing returning key),
     rows as (
        insert into orders.outbox_orders (idempotency_key, order_request_json, request_digest, expires_at)
        select w.key, w.request::jsonb, encode(w.digest, 'hex'), w.expires_at from wanted w join first using (key))
select key from first";

/// Sorted, so that two batches wait for each other instead of deadlocking.
const LOCK_ORDERING_KEYS: &str = "
select pg_advisory_xact_lock(l.lock)
from (select distinct orders.ordering_lock(k) as lock from unnest($1::text[]) k order by 1) l";

/// The first order of an ordering key is due, the others are parked behind it. Ids follow the order of arrival.
const INSERT_ORDERED: &str = "
insert into orders.outbox_orders
    (idempotency_key, order_request_json, request_digest, expires_at, ordering_key, due, parked)
select b.key, b.request::jsonb, b.digest, b.expires_at, b.ordering_key,
       case when b.behind then 'infinity' else now() end, case when b.behind then 'behind' end
from (select u.*, row_number() over (partition by u.ordering_key order by u.position) > 1
             or exists (select from orders.outbox_orders h
                        where h.ordering_key = u.ordering_key and h.finished_at is null) as behind
      from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[])
           with ordinality u(key, request, digest, expires_at, ordering_key, position)) b
order by b.position";

const VIEWS: &str = "
select l.idempotency_key, l.status, l.request_digest, l.result,
       o.status as outbox_status, o.attempts, o.last_error_code, o.last_error_msg
from orders.idempo_ledger l left join orders.outbox_orders o using (idempotency_key)
where l.idempotency_key = any($1)";

/// Index: the primary key, backwards.
const LIST: &str = "
select o.id, o.created_at, o.order_request_json as request, l.idempotency_key, l.status, l.request_digest, l.result,
       o.status as outbox_status, o.attempts, o.last_error_code, o.last_error_msg
from orders.outbox_orders o join orders.idempo_ledger l using (idempotency_key)
where o.id < coalesce($1, 9223372036854775807)
  and ($2::text is null or o.status = $2)
  and ($3::text is null or o.order_request_json ->> 'account' = $3)
  and ($4::text is null or o.order_request_json ->> 'symbol' = $4)
order by o.id desc limit $5";

const LOCK_ENTRY: &str =
    "select 1 from postrider.ledger where scope = 'orders' and key = $1 for update";

const LOCK_ROW: &str = "
select id, status, sent_at is not null as sent, coalesce(expires_at <= clock_timestamp(), false) as expired,
       status = 'aborted' and cause is null as cancelled
from orders.outbox_orders where idempotency_key = $1 for update";

/// The final check before sending, and the mark that the order may have been sent. No row is returned if the order has
/// been cancelled in the meantime.
const MARK_SENT: &str = "
update orders.outbox_orders t
set sent_at = case when t.expires_at <= clock_timestamp() then t.sent_at else coalesce(t.sent_at, clock_timestamp()) end
where t.id = $1 and t.finished_at is null
returning coalesce(t.expires_at <= clock_timestamp(), false)";

/// A cancelled order is not a dead letter: only dead letters have a cause.
const CLEAR_CAUSE: &str = "update orders.outbox_orders set cause = null where id = $1";

const CLEAR_SENT: &str = "update orders.outbox_orders set sent_at = null where id = $1";

const RECORD_ERROR: &str = "
update orders.outbox_orders
set last_error_code = $2, last_error_category = $3, last_error_msg = $4, sent_at = case when $5 then null else sent_at end
where id = $1";

/// The limit bounds the work when very many orders are pending.
const PENDING_AGE: &str = "
select coalesce(percentile_disc(0.95) within group (order by extract(epoch from clock_timestamp() - p.created_at)::float8), 0)
from (select created_at from orders.outbox_orders where finished_at is null and status = 'pending' limit 100000) p";

/// Index: outbox_orders_finished.
const CLEAN_OLD: &str = "
delete from orders.outbox_orders where ctid = any(array(
    select ctid from orders.outbox_orders
    where finished_at < now() - make_interval(secs => $1) order by finished_at limit $2 for update skip locked))";

/// Index: outbox_orders_expired.
const CLEAN_EXPIRED: &str = "
delete from orders.outbox_orders where ctid = any(array(
    select ctid from orders.outbox_orders
    where finished_at is not null and expires_at < now() and status = 'succeeded'
    limit $1 for update skip locked))";

/// The paper broker's orders whose outbox row is gone: nobody will query them again.
const CLEAN_PAPER: &str = "
delete from orders.paper_orders where ctid = any(array(
    select p.ctid from orders.paper_orders p
    where p.received_at < now() - make_interval(secs => $1)
      and not exists (select 1 from orders.outbox_orders o where o.idempotency_key = p.client_order_id)
    limit $2))";

const TIMELINE_HEAD: &str = "
select coalesce(o.status, l.state), o.id from postrider.ledger l
left join orders.outbox_orders o on o.idempotency_key = l.key
where l.scope = 'orders' and l.key = $1";

const TIMELINE_EVENTS: &str = "
select e.* from postrider.ledger l
left join orders.outbox_orders o on o.idempotency_key = l.key,
lateral (values
    (l.created_at, 'accepted', o.order_request_json ->> 'symbol', null::boolean),
    (o.sent_at, 'sent to the broker', null, null),
    (l.finished_at, case l.state when 'succeeded' then 'accepted by the broker' else 'aborted' end, l.result::text,
     l.state = 'succeeded')) e(at, what, detail, good)
where l.scope = 'orders' and l.key = $1 and e.at is not null order by e.at";

#[derive(sqlx::FromRow)]
struct Row {
    idempotency_key: String,
    status: LedgerStatus,
    request_digest: String,
    result: Option<Value>,
    outbox_status: Option<OutboxStatus>,
    attempts: Option<i32>,
    last_error_code: Option<String>,
    last_error_msg: Option<String>,
}

impl From<Row> for OrderView {
    fn from(row: Row) -> Self {
        Self {
            idempotency_key: row.idempotency_key,
            status: row.status,
            request_digest: row.request_digest,
            result: row.result,
            outbox: row.outbox_status.map(|status| OutboxView {
                status,
                attempts: row.attempts.unwrap_or_default(),
                last_error_code: row.last_error_code,
                last_error_msg: row.last_error_msg,
            }),
        }
    }
}

#[derive(sqlx::FromRow)]
struct ListedRow {
    id: i64,
    created_at: OffsetDateTime,
    request: Value,
    #[sqlx(flatten)]
    row: Row,
}

/// An order in a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedOrder {
    /// The row's id, by which listings are sorted.
    pub id: i64,
    /// When the order was accepted.
    pub accepted_at: OffsetDateTime,
    /// The order as it was posted.
    pub request: Value,
    /// What clients see of the order.
    pub view: OrderView,
}

/// Which orders to list.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Filter {
    /// Only orders with this status.
    pub status: Option<OutboxStatus>,
    /// Only orders of this account.
    pub account: Option<String>,
    /// Only orders of this symbol.
    pub symbol: Option<String>,
}

/// A locked order: what cancel and redrive need to know before they change anything.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct LockedOrder {
    pub id: i64,
    pub status: OutboxStatus,
    pub sent: bool,
    pub expired: bool,
    pub cancelled: bool,
}

/// Accepts the orders whose keys are unused, each with its row, in one commit; returns their keys. Keys must be distinct.
pub(crate) async fn accept(
    connection: &mut PgConnection,
    orders: &[&Order],
    lock_timeout: Duration,
) -> Result<HashSet<String>, sqlx::Error> {
    let keys: Vec<&str> = orders.iter().map(|order| order.key.key()).collect();
    let requests: Vec<&str> = orders.iter().map(|o| o.canonical.as_str()).collect();
    let digests: Vec<&[u8]> = orders.iter().map(|o| &o.digest.as_bytes()[..]).collect();
    let expiries: Vec<_> = orders.iter().map(|order| order.expires_at).collect();
    let new: Vec<String> = sqlx::query_scalar(ACCEPT)
        .bind(keys)
        .bind(requests)
        .bind(digests)
        .bind(expiries)
        .bind(format!("{}ms", lock_timeout.as_millis()))
        .fetch_all(connection)
        .await?;
    Ok(new.into_iter().collect())
}

/// Inserts the rows of orders with ordering keys, in this order.
pub(crate) async fn insert_ordered(
    tx: &mut PgConnection,
    orders: &[&Order],
    ordering: Ordering,
) -> Result<(), sqlx::Error> {
    if orders.is_empty() {
        return Ok(());
    }
    let ordering_keys: Vec<Option<String>> =
        orders.iter().map(|order| ordering.key(order)).collect();
    sqlx::query(LOCK_ORDERING_KEYS)
        .bind(&ordering_keys)
        .execute(&mut *tx)
        .await?;
    let keys: Vec<&str> = orders.iter().map(|order| order.key.key()).collect();
    let requests: Vec<&str> = orders.iter().map(|o| o.canonical.as_str()).collect();
    let digests: Vec<String> = orders.iter().map(|o| o.digest.to_string()).collect();
    let expiries: Vec<_> = orders.iter().map(|order| order.expires_at).collect();
    sqlx::query(INSERT_ORDERED)
        .bind(keys)
        .bind(requests)
        .bind(digests)
        .bind(expiries)
        .bind(ordering_keys)
        .execute(tx)
        .await
        .map(drop)
}

/// The orders under these keys, in no particular order.
pub(crate) async fn views(
    connection: impl PgExecutor<'_>,
    keys: &[&str],
) -> Result<Vec<OrderView>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(VIEWS)
        .bind(keys)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(OrderView::from).collect())
}

/// Orders with an id below `before`, newest first.
pub(crate) async fn list(
    pool: &PgPool,
    filter: &Filter,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<ListedOrder>, sqlx::Error> {
    let rows: Vec<ListedRow> = sqlx::query_as(LIST)
        .bind(before)
        .bind(filter.status)
        .bind(&filter.account)
        .bind(&filter.symbol)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    Ok(rows
        .into_iter()
        .map(|listed| ListedOrder {
            id: listed.id,
            accepted_at: listed.created_at,
            request: listed.request,
            view: listed.row.into(),
        })
        .collect())
}

/// Locks an order's ledger entry and row against its worker; `None` if there is no row.
pub(crate) async fn lock(
    tx: &mut PgConnection,
    key: &Key,
) -> Result<Option<LockedOrder>, sqlx::Error> {
    sqlx::query(LOCK_ENTRY)
        .bind(key.key())
        .execute(&mut *tx)
        .await?;
    sqlx::query_as(LOCK_ROW)
        .bind(key.key())
        .fetch_optional(tx)
        .await
}

/// Result of the final check before sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendCheck {
    /// Send it; from now on it may have been sent.
    Send,
    /// Its `expires_at` has passed.
    Expired,
    /// It has been cancelled in the meantime.
    Finished,
}

/// Marks an order as possibly sent, unless it has expired or is finished.
pub(crate) async fn mark_sent(pool: &PgPool, id: i64) -> Result<SendCheck, sqlx::Error> {
    let expired: Option<bool> = sqlx::query_scalar(MARK_SENT)
        .bind(id)
        .fetch_optional(pool)
        .await?;
    Ok(match expired {
        Some(false) => SendCheck::Send,
        Some(true) => SendCheck::Expired,
        None => SendCheck::Finished,
    })
}

/// Takes an order that was just cancelled out of the dead letters.
pub(crate) async fn clear_cause(tx: &mut PgConnection, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(CLEAR_CAUSE)
        .bind(id)
        .execute(tx)
        .await
        .map(drop)
}

/// The broker certainly doesn't have the order.
pub(crate) async fn clear_sent(tx: &mut PgConnection, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(CLEAR_SENT).bind(id).execute(tx).await.map(drop)
}

/// Records why an order waits although no attempt was spent.
pub(crate) async fn record_error(
    tx: &mut PgConnection,
    id: i64,
    failure: &Failure,
    not_sent: bool,
) -> Result<(), sqlx::Error> {
    sqlx::query(RECORD_ERROR)
        .bind(id)
        .bind(failure.code())
        .bind(failure.category().as_str())
        .bind(failure.message())
        .bind(not_sent)
        .execute(tx)
        .await
        .map(drop)
}

/// The 95th percentile age of pending orders, in seconds.
pub(crate) async fn pending_age(pool: &PgPool) -> Result<f64, sqlx::Error> {
    sqlx::query_scalar(PENDING_AGE).fetch_one(pool).await
}

/// Deletes up to `limit` rows of each kind whose retention is over; returns how many.
pub(crate) async fn clean(
    pool: &PgPool,
    retention: Duration,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let seconds = retention.as_secs_f64();
    let old = sqlx::query(CLEAN_OLD)
        .bind(seconds)
        .bind(limit)
        .execute(pool)
        .await?;
    let expired = sqlx::query(CLEAN_EXPIRED).bind(limit).execute(pool).await?;
    let paper = sqlx::query(CLEAN_PAPER)
        .bind(seconds)
        .bind(limit)
        .execute(pool)
        .await?;
    Ok(old.rows_affected() + expired.rows_affected() + paper.rows_affected())
}

/// An order's state and the id of its row, if it still has one.
pub(crate) async fn timeline_head(
    pool: &PgPool,
    key: &str,
) -> Result<Option<(String, Option<i64>)>, sqlx::Error> {
    sqlx::query_as(TIMELINE_HEAD)
        .bind(key)
        .fetch_optional(pool)
        .await
}

/// What happened to an order, oldest first.
pub(crate) async fn timeline_events(pool: &PgPool, key: &str) -> Result<Vec<Event>, sqlx::Error> {
    sqlx::query_as(TIMELINE_EVENTS)
        .bind(key)
        .fetch_all(pool)
        .await
}
