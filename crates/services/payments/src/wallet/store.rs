//! All SQL of the wallet.
//!
//! Lock order: accounts before inbox rows, each sorted. Two consumers with the same accounts wait for each other instead of
//! deadlocking, and so does a reconciliation, which locks inbox rows only.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use postrider::failure::Failure;
use postrider_inspect::timeline::Event;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;

use super::deduction::{self, Charge, LockedAccount, PaymentResult};
use super::{InboxState, NewAccount};
use crate::model::{AccountView, EntryView, Money, Outcome, TraceContext, WalletState};

/// The account and its two opening entries, in one statement.
const OPEN: &str = "
with new as (
    insert into wallet.account (account_id, currency, balance, opening)
    values ($1, $2, $3::text::numeric, $3::text::numeric)
    on conflict (account_id) do nothing
    returning account_id),
booked as (
    insert into wallet.entry (uuid, account_id, amount, currency, kind)
    select $4, side.account_id, side.amount, $2, 'opening'
    from new, lateral (values (new.account_id, $3::text::numeric), ('system:opening', - $3::text::numeric))
        side(account_id, amount)
    where side.amount <> 0)
select count(*) from new";

const ACCOUNT: &str = "
select account_id, currency, balance::text, opening::text from wallet.account where account_id = $1";

/// Index: entry_account, backwards.
const ENTRIES: &str = "
select id, uuid, kind, amount::text as amount, currency, created_at from wallet.entry
where account_id = $1 and id < coalesce($2, 9223372036854775807) order by id desc limit $3";

const LOCK_ACCOUNTS: &str = "
select account_id, currency, balance::text from wallet.account
where account_id = any($1) order by account_id for no key update";

const ALREADY_HANDLED: &str = "select uuid from wallet.inbox where uuid = any($1)";

/// Inbox, balances, both entries and (in mode `assured`) the callback, in one statement. Everything follows from the insert
/// into the inbox, so a payment that is already there changes nothing.
const DEDUCT: &str = "
with charge as materialized (
    select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                         $9::text[], $10::text[])
        c(uuid, message_id, account_id, amount, currency, status, reason, trace, tracestate)),
handled as (
    insert into wallet.inbox (uuid, message_id, account_id, amount, currency, status, reason)
    select uuid, message_id, account_id, amount::numeric, currency, status, reason from charge order by uuid
    on conflict (uuid) do nothing
    returning uuid, account_id, amount, currency, status, reason),
paid as (
    update wallet.account a set balance = a.balance - p.amount
    from (select account_id, sum(amount) as amount from handled where status = 'SUCCEED' group by account_id) p
    where a.account_id = p.account_id),
booked as (
    insert into wallet.entry (uuid, account_id, amount, currency, kind)
    select h.uuid, side.account_id, side.amount, h.currency, 'payment'
    from handled h, lateral (values (h.account_id, - h.amount), ('system:payments', h.amount)) side(account_id, amount)
    where h.status = 'SUCCEED'),
callback as (
    insert into wallet.outbox (uuid, outcome, reason, trace, tracestate)
    select h.uuid, h.status, h.reason, c.trace, c.tracestate from handled h join charge c using (uuid) where $8)
select count(*) from handled";

const STATES: &str = "
select u.uuid,
       i.status in ('SUCCEED', 'FAILED') as handled,
       i.callback_error is not null or i.received_at < clock_timestamp() - make_interval(secs => $2) as overdue,
       o.uuid is not null as has_outbox,
       o.try_count > 0 as callback_failed,
       exists (select from wallet.failure f where f.uuid = u.uuid) as consumer_failed
from unnest($1::uuid[]) u(uuid)
left join wallet.inbox i on i.uuid = u.uuid
left join wallet.outbox o on o.uuid = u.uuid";

/// Waits for a consumer that is just handling one of them. Sorted like the consumer's own insert.
const PLACE_TOMBSTONES: &str = "
insert into wallet.inbox (uuid, status)
select uuid, 'TOMBSTONE' from unnest($1::uuid[]) u(uuid) order by uuid
on conflict (uuid) do nothing";

const INBOX_STATES: &str = "
select i.uuid, i.status, i.reason, exists (select from wallet.failure f where f.uuid = i.uuid)
from wallet.inbox i where i.uuid = any($1)";

const RECORD_FAILURE: &str = "
insert into wallet.failure (uuid, message_id, error_code, error) values ($1, $2, $3, $4)";

const RECORD_CALLBACK_ERROR: &str = "update wallet.inbox set callback_error = $2 where uuid = $1";

const TIMELINE_HEAD: &str = "
select i.message_id, o.id from (select $1::uuid as uuid) w
left join wallet.inbox i using (uuid) left join wallet.outbox o using (uuid)";

const TIMELINE_EVENTS: &str = "
select i.received_at as at, 'handled by the wallet: ' || i.status as what, i.reason as detail, i.status = 'SUCCEED' as good
from wallet.inbox i where i.uuid = $1
union all
select f.failed_at, 'the wallet failed: ' || f.error_code, f.error, false from wallet.failure f where f.uuid = $1
union all
select o.created_at, 'callback pending: ' || o.outcome, o.last_error_code, null from wallet.outbox o where o.uuid = $1
order by 1";

/// Opens an account; false if the id is in use.
pub(super) async fn open(pool: &PgPool, account: &NewAccount) -> Result<bool, sqlx::Error> {
    let new: i64 = sqlx::query_scalar(OPEN)
        .bind(&account.account_id)
        .bind(account.balance.currency.code())
        .bind(account.balance.to_string())
        .bind(Uuid::now_v7())
        .fetch_one(pool)
        .await?;
    Ok(new > 0)
}

/// The account, and its opening balance.
pub(super) async fn account(
    pool: &PgPool,
    account_id: &str,
) -> Result<Option<(AccountView, Option<Money>)>, sqlx::Error> {
    let row: Option<(String, String, String, String)> = sqlx::query_as(ACCOUNT)
        .bind(account_id)
        .fetch_optional(pool)
        .await?;
    Ok(row.map(|(account_id, currency, balance, opening)| {
        let opening = Money::from_stored(&opening, &currency);
        let view = AccountView {
            account_id,
            balance: display(balance, &currency),
            currency,
        };
        (view, opening)
    }))
}

/// An account's entries with an id below `before`, newest first.
pub(super) async fn entries(
    pool: &PgPool,
    account_id: &str,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<EntryView>, sqlx::Error> {
    type Row = (i64, Uuid, String, String, String, OffsetDateTime);
    let rows: Vec<Row> = sqlx::query_as(ENTRIES)
        .bind(account_id)
        .bind(before)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    let view = |(id, uuid, kind, amount, currency, created_at): Row| EntryView {
        id,
        uuid,
        kind,
        amount: display(amount, &currency),
        currency,
        created_at,
    };
    Ok(rows.into_iter().map(view).collect())
}

/// With all decimal places of its currency, whatever the database wrote.
fn display(amount: String, currency: &str) -> String {
    Money::from_stored(&amount, currency).map_or(amount, |money| money.to_string())
}

/// Deducts charges, each uuid once; returns the results of those that were new. Nothing counts before the returned
/// transaction commits.
pub(super) async fn deduct(
    pool: &PgPool,
    charges: &[Charge],
    with_callback: bool,
) -> Result<(Transaction<'static, Postgres>, Vec<PaymentResult>), sqlx::Error> {
    let mut seen = HashSet::with_capacity(charges.len());
    let mut charges: Vec<&Charge> = charges
        .iter()
        .filter(|charge| seen.insert(charge.uuid))
        .collect();
    loop {
        let mut tx = pool.begin().await?;
        let mut accounts = lock(&mut tx, &charges).await?;
        let results = deduction::deduct(&mut accounts, &charges);
        if write(&mut tx, &charges, &results, with_callback).await? == charges.len() {
            return Ok((tx, results));
        }
        // Some had been handled already, which may leave enough money for others: decide again without them.
        tx.rollback().await?;
        let uuids: Vec<Uuid> = charges.iter().map(|charge| charge.uuid).collect();
        let handled: Vec<Uuid> = sqlx::query_scalar(ALREADY_HANDLED)
            .bind(uuids)
            .fetch_all(pool)
            .await?;
        let handled: HashSet<Uuid> = handled.into_iter().collect();
        charges.retain(|charge| !handled.contains(&charge.uuid));
    }
}

async fn lock(
    tx: &mut PgConnection,
    charges: &[&Charge],
) -> Result<HashMap<String, LockedAccount>, sqlx::Error> {
    let accounts: HashSet<&str> = charges
        .iter()
        .map(|charge| charge.account_id.as_str())
        .collect();
    let accounts: Vec<&str> = accounts.into_iter().collect();
    let rows: Vec<(String, String, String)> = sqlx::query_as(LOCK_ACCOUNTS)
        .bind(accounts)
        .fetch_all(tx)
        .await?;
    rows.into_iter()
        .map(|(account_id, currency, balance)| {
            let balance = Money::from_stored(&balance, &currency).ok_or_else(|| {
                let text =
                    format!("the balance of account {account_id} is not an amount in {currency}");
                sqlx::Error::Decode(text.into())
            })?;
            let account = LockedAccount {
                balance: balance.minor,
                currency: balance.currency,
            };
            Ok((account_id, account))
        })
        .collect()
}

async fn write(
    tx: &mut PgConnection,
    charges: &[&Charge],
    results: &[PaymentResult],
    with_callback: bool,
) -> Result<usize, sqlx::Error> {
    if charges.is_empty() {
        return Ok(0);
    }
    let text = |value: fn(&Charge) -> String| -> Vec<String> {
        charges.iter().map(|charge| value(charge)).collect()
    };
    let uuids = |value: fn(&Charge) -> Uuid| -> Vec<Uuid> {
        charges.iter().map(|charge| value(charge)).collect()
    };
    let statuses: Vec<&str> = results
        .iter()
        .map(|result| result.outcome.as_str())
        .collect();
    let reasons: Vec<Option<&str>> = results
        .iter()
        .map(|result| result.reason.as_deref())
        .collect();
    let (parents, states) = TraceContext::columns(charges.iter().map(|c| c.trace.as_ref()));
    let handled: i64 = sqlx::query_scalar(DEDUCT)
        .bind(uuids(|charge| charge.uuid))
        .bind(uuids(|charge| charge.message_id))
        .bind(text(|charge| charge.account_id.clone()))
        .bind(text(|charge| charge.money.to_string()))
        .bind(text(|charge| charge.money.currency.to_string()))
        .bind(statuses)
        .bind(reasons)
        .bind(with_callback)
        .bind(parents)
        .bind(states)
        .fetch_one(tx)
        .await?;
    Ok(usize::try_from(handled).unwrap_or_default())
}

/// What the wallet knows about these payments.
pub(super) async fn states(
    pool: &PgPool,
    uuids: &[Uuid],
    callback_timeout: Duration,
) -> Result<HashMap<Uuid, WalletState>, sqlx::Error> {
    type Row = (Uuid, Option<bool>, Option<bool>, bool, Option<bool>, bool);
    let rows: Vec<Row> = sqlx::query_as(STATES)
        .bind(uuids)
        .bind(callback_timeout.as_secs_f64() + 1.0)
        .fetch_all(pool)
        .await?;
    let state = |(uuid, handled, overdue, has_outbox, callback_failed, consumer_failed): Row| {
        let failed = if has_outbox { callback_failed } else { overdue };
        let state = match handled {
            Some(true) if failed == Some(true) => WalletState::CallbackFailed,
            Some(true) => WalletState::CallbackPending,
            _ if consumer_failed => WalletState::Failed,
            _ => WalletState::Unknown,
        };
        (uuid, state)
    };
    Ok(rows.into_iter().map(state).collect())
}

/// Places a tombstone for each of these payments that is not in the inbox yet.
pub(super) async fn place_tombstones(pool: &PgPool, uuids: &[Uuid]) -> Result<(), sqlx::Error> {
    sqlx::query(PLACE_TOMBSTONES)
        .bind(uuids)
        .execute(pool)
        .await
        .map(drop)
}

/// The states of these payments in the inbox.
pub(super) async fn inbox_states(
    pool: &PgPool,
    uuids: &[Uuid],
) -> Result<HashMap<Uuid, InboxState>, sqlx::Error> {
    let rows: Vec<(Uuid, String, Option<String>, bool)> = sqlx::query_as(INBOX_STATES)
        .bind(uuids)
        .fetch_all(pool)
        .await?;
    let state = |(uuid, status, reason, consumer_failed): (Uuid, String, _, _)| {
        let state = match status.as_str() {
            "SUCCEED" => InboxState::Handled(Outcome::Succeed, None),
            "FAILED" => InboxState::Handled(Outcome::Failed, reason),
            _ => InboxState::Tombstone { consumer_failed },
        };
        (uuid, state)
    };
    Ok(rows.into_iter().map(state).collect())
}

/// Records that the consumer failed to handle a message and gave up.
pub(super) async fn record_failure(
    tx: &mut PgConnection,
    uuid: Option<Uuid>,
    message_id: Uuid,
    failure: &Failure,
) -> Result<(), sqlx::Error> {
    sqlx::query(RECORD_FAILURE)
        .bind(uuid)
        .bind(message_id)
        .bind(failure.code())
        .bind(failure.message())
        .execute(tx)
        .await
        .map(drop)
}

/// Records that the only callback of a payment in mode `chance` has failed.
pub(super) async fn record_callback_error(
    pool: &PgPool,
    uuid: Uuid,
    error: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query(RECORD_CALLBACK_ERROR)
        .bind(uuid)
        .bind(error)
        .execute(pool)
        .await
        .map(drop)
}

/// The message that a payment came in, and the id of its row in the outbox.
pub(crate) async fn timeline_head(
    pool: &PgPool,
    uuid: Uuid,
) -> Result<(Option<Uuid>, Option<i64>), sqlx::Error> {
    sqlx::query_as(TIMELINE_HEAD)
        .bind(uuid)
        .fetch_one(pool)
        .await
}

/// What happened to a payment at the wallet, oldest first.
pub(crate) async fn timeline_events(pool: &PgPool, uuid: Uuid) -> Result<Vec<Event>, sqlx::Error> {
    sqlx::query_as(TIMELINE_EVENTS)
        .bind(uuid)
        .fetch_all(pool)
        .await
}
