//! All SQL of the slice, but for the paper broker's own book.
//!
//! Whoever locks both an order's ledger entry and its row locks the entry first: the worker's settling does so, too.

use std::{collections::HashSet, time::Duration};

use postrider::{failure::Failure, ledger::Key};
use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, PgPool};
use time::OffsetDateTime;

use crate::{
    model::{LedgerStatus, Order, OrderView, OutboxStatus, OutboxView},
    settings::Ordering,
};

/// The ledger's own acceptance with the rows in the same statement: the round trips of a transaction cost more than the
/// rest of it. Sorted, so that two batches with the same keys wait for each other instead of deadlocking.
const ACCEPT: &str = "
with patience as materialized (select set_config('lock_timeout', $5, true)),
     wanted as materialized (
        select u.* from patience, unnest($1::text[], $2::text[], $3::bytea[], $4::timestamptz[]) u(key, request, digest, expires_at)
        order by u.key),
     first as (
        insert into postrider.ledger (scope, key, digest) select 'orders', w.key, w.digest from wanted w
        on conflict (scope, key) do nothing returning key),
     rows as (
        insert into orders.outbox_orders (idempotency_key, order_request_json, request_digest, expires_at)
        select w.key, w.request::jsonb, encode(w.digest, 'hex'), w.expires_at from wanted w join first using (key))
select key from first";

/// Sorted, so that two batches wait for each other instead of deadlocking.
const LOCK_LINES: &str = "
select pg_advisory_xact_lock(l.lock)
from (select distinct orders.ordering_lock(k) as lock from unnest($1::text[]) k order by 1) l";

/// The first of its key is due, the others are parked behind it; ids are given in the order of arrival.
const INSERT_IN_LINE: &str = "
insert into orders.outbox_orders
    (idempotency_key, order_request_json, request_digest, expires_at, ordering_key, due, parked)
select b.key, b.request::jsonb, b.digest, b.expires_at, b.line,
       case when b.behind then 'infinity' else now() end, case when b.behind then 'behind' end
from (select u.*, row_number() over (partition by u.line order by u.place) > 1
             or exists (select from orders.outbox_orders h where h.ordering_key = u.line and h.finished_at is null) as behind
      from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[])
           with ordinality u(key, request, digest, expires_at, line, place)) b
order by b.place";

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

/// The last look before the order leaves the house, and the mark that it may have left. A row that was cancelled
/// meanwhile gives nothing.
const ABOUT_TO_SEND: &str = "
update orders.outbox_orders t
set sent_at = case when t.expires_at <= clock_timestamp() then t.sent_at else coalesce(t.sent_at, clock_timestamp()) end
where t.id = $1 and t.finished_at is null
returning coalesce(t.expires_at <= clock_timestamp(), false)";

/// What was called off is no dead letter: those have a cause.
const CALLED_OFF: &str = "update orders.outbox_orders set cause = null where id = $1";

const NOT_SENT: &str = "update orders.outbox_orders set sent_at = null where id = $1";

const HELD: &str = "
update orders.outbox_orders
set last_error_code = $2, last_error_category = $3, last_error_msg = $4, sent_at = case when $5 then null else sent_at end
where id = $1";

/// Pending rows are unfinished ones; a sample bounds the work when there are very many.
const AGE: &str = "
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

/// The paper broker forgets what nobody will ask it about any more.
const CLEAN_PAPER: &str = "
delete from orders.paper_orders where ctid = any(array(
    select p.ctid from orders.paper_orders p
    where p.received_at < now() - make_interval(secs => $1)
      and not exists (select 1 from orders.outbox_orders o where o.idempotency_key = p.client_order_id)
    limit $2))";

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
struct Placed {
    id: i64,
    created_at: OffsetDateTime,
    request: Value,
    #[sqlx(flatten)]
    row: Row,
}

/// An order in the listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its place: give it as `before` to get those that are older.
    pub place: i64,
    /// When it was accepted.
    pub accepted_at: OffsetDateTime,
    /// What was asked for.
    pub request: Value,
    /// What clients are shown of it.
    pub view: OrderView,
}

/// Which orders are listed.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Filter {
    /// Where they stand.
    pub status: Option<OutboxStatus>,
    /// On whose account.
    pub account: Option<String>,
    /// Of which symbol.
    pub symbol: Option<String>,
}

/// What an operation on one order must know before it changes anything.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct Standing {
    pub id: i64,
    pub status: OutboxStatus,
    pub sent: bool,
    pub expired: bool,
    pub cancelled: bool,
}

/// Accepts the orders whose keys are free, each with its row, in one commit; gives their keys. No key may come twice.
pub(crate) async fn accept(
    connection: &mut PgConnection,
    orders: &[&Order],
    patience: Duration,
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
        .bind(format!("{}ms", patience.as_millis()))
        .fetch_all(connection)
        .await?;
    Ok(new.into_iter().collect())
}

/// Adds the rows of orders that wait in line, in this order.
pub(crate) async fn insert_in_line(
    tx: &mut PgConnection,
    orders: &[&Order],
    ordering: Ordering,
) -> Result<(), sqlx::Error> {
    if orders.is_empty() {
        return Ok(());
    }
    let lines: Vec<Option<String>> = orders.iter().map(|order| ordering.key(order)).collect();
    sqlx::query(LOCK_LINES)
        .bind(&lines)
        .execute(&mut *tx)
        .await?;
    let keys: Vec<&str> = orders.iter().map(|order| order.key.key()).collect();
    let requests: Vec<&str> = orders.iter().map(|o| o.canonical.as_str()).collect();
    let digests: Vec<String> = orders.iter().map(|o| o.digest.to_string()).collect();
    let expiries: Vec<_> = orders.iter().map(|order| order.expires_at).collect();
    sqlx::query(INSERT_IN_LINE)
        .bind(keys)
        .bind(requests)
        .bind(digests)
        .bind(expiries)
        .bind(lines)
        .execute(tx)
        .await
        .map(drop)
}

/// What is known under these keys, in no particular order.
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

/// The newest first, older than the row `before`.
pub(crate) async fn list(
    pool: &PgPool,
    filter: &Filter,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<Listed>, sqlx::Error> {
    let rows: Vec<Placed> = sqlx::query_as(LIST)
        .bind(before)
        .bind(filter.status)
        .bind(&filter.account)
        .bind(&filter.symbol)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    Ok(rows
        .into_iter()
        .map(|placed| Listed {
            place: placed.id,
            accepted_at: placed.created_at,
            request: placed.request,
            view: placed.row.into(),
        })
        .collect())
}

/// Locks an order's entry and row against its worker; none if the row is gone or never was.
pub(crate) async fn lock(
    tx: &mut PgConnection,
    key: &Key,
) -> Result<Option<Standing>, sqlx::Error> {
    sqlx::query(LOCK_ENTRY)
        .bind(key.key())
        .execute(&mut *tx)
        .await?;
    sqlx::query_as(LOCK_ROW)
        .bind(key.key())
        .fetch_optional(tx)
        .await
}

/// What the last look before sending found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clearance {
    /// Send it; from now on it may have been sent.
    Send,
    /// Too late.
    Expired,
    /// It is finished: somebody cancelled it.
    Gone,
}

pub(crate) async fn about_to_send(pool: &PgPool, id: i64) -> Result<Clearance, sqlx::Error> {
    let expired: Option<bool> = sqlx::query_scalar(ABOUT_TO_SEND)
        .bind(id)
        .fetch_optional(pool)
        .await?;
    Ok(match expired {
        Some(false) => Clearance::Send,
        Some(true) => Clearance::Expired,
        None => Clearance::Gone,
    })
}

/// Takes an order that was just cancelled out of the dead letters.
pub(crate) async fn called_off(tx: &mut PgConnection, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(CALLED_OFF).bind(id).execute(tx).await.map(drop)
}

pub(crate) async fn not_sent(tx: &mut PgConnection, id: i64) -> Result<(), sqlx::Error> {
    sqlx::query(NOT_SENT).bind(id).execute(tx).await.map(drop)
}

/// Says why an order waits, although no attempt was spent.
pub(crate) async fn held(
    tx: &mut PgConnection,
    id: i64,
    why: &Failure,
    not_sent: bool,
) -> Result<(), sqlx::Error> {
    sqlx::query(HELD)
        .bind(id)
        .bind(why.code())
        .bind(why.category().as_str())
        .bind(why.message())
        .bind(not_sent)
        .execute(tx)
        .await
        .map(drop)
}

pub(crate) async fn pending_age(pool: &PgPool) -> Result<f64, sqlx::Error> {
    sqlx::query_scalar(AGE).fetch_one(pool).await
}

/// Removes up to `limit` rows of each kind that may go; says how many went.
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
