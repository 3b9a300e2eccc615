//! All SQL of the wallet.
//!
//! Whoever locks several things locks accounts before inbox rows, and each in one order: two listeners with the same
//! accounts wait for each other instead of deadlocking, and a reconciliation, which locks inbox rows alone, can't be in
//! their way either.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use postrider::failure::Failure;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;

use super::books::{self, Bill, News, Purse};
use super::{Opening, Verdict};
use crate::model::{AccountView, EntryView, Fact, Money, Outcome, TraceContext};

/// The account and its first two lines in the books, in one statement.
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

const TAKEN_BEFORE: &str = "select uuid from wallet.inbox where uuid = any($1)";

/// Inbox, balances, both lines of the books and (where asked) the call back that is owed: one statement. It does for a
/// payment what the inbox lets it do, hence nothing for one that is there already.
const TAKE_IN: &str = "
with bill as materialized (
    select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                         $9::text[], $10::text[])
        b(uuid, message_id, account_id, amount, currency, status, reason, trace, tracestate)),
taken as (
    insert into wallet.inbox (uuid, message_id, account_id, amount, currency, status, reason)
    select uuid, message_id, account_id, amount::numeric, currency, status, reason from bill order by uuid
    on conflict (uuid) do nothing
    returning uuid, account_id, amount, currency, status, reason),
paid as (
    update wallet.account a set balance = a.balance - p.amount
    from (select account_id, sum(amount) as amount from taken where status = 'SUCCEED' group by account_id) p
    where a.account_id = p.account_id),
booked as (
    insert into wallet.entry (uuid, account_id, amount, currency, kind)
    select t.uuid, side.account_id, side.amount, t.currency, 'payment'
    from taken t, lateral (values (t.account_id, - t.amount), ('system:payments', t.amount)) side(account_id, amount)
    where t.status = 'SUCCEED'),
owed as (
    insert into wallet.outbox (uuid, outcome, reason, trace, tracestate)
    select t.uuid, t.status, t.reason, b.trace, b.tracestate from taken t join bill b using (uuid) where $8)
select count(*) from taken";

const FACTS: &str = "
select u.uuid,
       i.status in ('SUCCEED', 'FAILED') as handled,
       i.callback_error is not null or i.received_at < clock_timestamp() - make_interval(secs => $2) as overdue,
       o.uuid is not null as owed,
       o.try_count > 0 as owed_in_vain,
       exists (select from wallet.failure f where f.uuid = u.uuid) as given_up
from unnest($1::uuid[]) u(uuid)
left join wallet.inbox i on i.uuid = u.uuid
left join wallet.outbox o on o.uuid = u.uuid";

/// Waits for a listener that is just taking one of them in. Sorted like the listener's own insert.
const TOMBSTONES: &str = "
insert into wallet.inbox (uuid, status)
select uuid, 'TOMBSTONE' from unnest($1::uuid[]) u(uuid) order by uuid
on conflict (uuid) do nothing";

const VERDICTS: &str = "
select i.uuid, i.status, i.reason, exists (select from wallet.failure f where f.uuid = i.uuid)
from wallet.inbox i where i.uuid = any($1)";

const FAILED: &str = "
insert into wallet.failure (uuid, message_id, error_code, error) values ($1, $2, $3, $4)";

const UNTOLD: &str = "update wallet.inbox set callback_error = $2 where uuid = $1";

pub(super) async fn open(pool: &PgPool, opening: &Opening) -> Result<bool, sqlx::Error> {
    let new: i64 = sqlx::query_scalar(OPEN)
        .bind(&opening.account_id)
        .bind(opening.balance.currency.code())
        .bind(opening.balance.to_string())
        .bind(Uuid::now_v7())
        .fetch_one(pool)
        .await?;
    Ok(new > 0)
}

/// The account as it stands, and what it was opened with.
pub(super) async fn account(
    pool: &PgPool,
    account_id: &str,
) -> Result<Option<(AccountView, Option<Money>)>, sqlx::Error> {
    let row: Option<(String, String, String, String)> = sqlx::query_as(ACCOUNT)
        .bind(account_id)
        .fetch_optional(pool)
        .await?;
    Ok(row.map(|(account_id, currency, balance, opening)| {
        let opening = Money::stored(&opening, &currency);
        let view = AccountView {
            account_id,
            balance: shown(balance, &currency),
            currency,
        };
        (view, opening)
    }))
}

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
        amount: shown(amount, &currency),
        currency,
        created_at,
    };
    Ok(rows.into_iter().map(view).collect())
}

/// With all places of its currency, whatever the database wrote.
fn shown(amount: String, currency: &str) -> String {
    Money::stored(&amount, currency).map_or(amount, |money| money.to_string())
}

/// Takes bills in, each uuid once, and deducts; says what became of those that were new. Nothing counts before the
/// transaction that is returned commits.
pub(super) async fn take_in(
    pool: &PgPool,
    bills: &[Bill],
    owed: bool,
) -> Result<(Transaction<'static, Postgres>, Vec<News>), sqlx::Error> {
    let mut seen = HashSet::with_capacity(bills.len());
    let mut bills: Vec<&Bill> = bills.iter().filter(|bill| seen.insert(bill.uuid)).collect();
    loop {
        let mut tx = pool.begin().await?;
        let mut purses = lock(&mut tx, &bills).await?;
        let news = books::deduct(&mut purses, &bills);
        if write(&mut tx, &bills, &news, owed).await? == bills.len() {
            return Ok((tx, news));
        }
        // Some were there already: what they did not spend may be enough for others. Decide anew without them.
        tx.rollback().await?;
        let uuids: Vec<Uuid> = bills.iter().map(|bill| bill.uuid).collect();
        let before: Vec<Uuid> = sqlx::query_scalar(TAKEN_BEFORE)
            .bind(uuids)
            .fetch_all(pool)
            .await?;
        let before: HashSet<Uuid> = before.into_iter().collect();
        bills.retain(|bill| !before.contains(&bill.uuid));
    }
}

async fn lock(
    tx: &mut PgConnection,
    bills: &[&Bill],
) -> Result<HashMap<String, Purse>, sqlx::Error> {
    let accounts: HashSet<&str> = bills.iter().map(|bill| bill.account_id.as_str()).collect();
    let accounts: Vec<&str> = accounts.into_iter().collect();
    let rows: Vec<(String, String, String)> = sqlx::query_as(LOCK_ACCOUNTS)
        .bind(accounts)
        .fetch_all(tx)
        .await?;
    rows.into_iter()
        .map(|(account_id, currency, balance)| {
            let held = Money::stored(&balance, &currency).ok_or_else(|| {
                let text = format!("the balance of {account_id} is no amount of {currency}");
                sqlx::Error::Decode(text.into())
            })?;
            let purse = Purse {
                balance: held.minor,
                currency: held.currency,
            };
            Ok((account_id, purse))
        })
        .collect()
}

async fn write(
    tx: &mut PgConnection,
    bills: &[&Bill],
    news: &[News],
    owed: bool,
) -> Result<usize, sqlx::Error> {
    if bills.is_empty() {
        return Ok(0);
    }
    let text =
        |of: fn(&Bill) -> String| -> Vec<String> { bills.iter().map(|bill| of(bill)).collect() };
    let traces = bills.iter().map(|bill| bill.trace.as_ref());
    let (parents, states) = TraceContext::columns(traces);
    let taken: i64 = sqlx::query_scalar(TAKE_IN)
        .bind(bills.iter().map(|bill| bill.uuid).collect::<Vec<_>>())
        .bind(bills.iter().map(|bill| bill.message_id).collect::<Vec<_>>())
        .bind(text(|bill| bill.account_id.clone()))
        .bind(text(|bill| bill.money.to_string()))
        .bind(text(|bill| bill.money.currency.to_string()))
        .bind(
            news.iter()
                .map(|news| news.outcome.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(news.iter().map(|news| news.reason).collect::<Vec<_>>())
        .bind(owed)
        .bind(parents)
        .bind(states)
        .fetch_one(tx)
        .await?;
    Ok(usize::try_from(taken).unwrap_or_default())
}

pub(super) async fn facts(
    pool: &PgPool,
    uuids: &[Uuid],
    telling: Duration,
) -> Result<HashMap<Uuid, Fact>, sqlx::Error> {
    type Row = (Uuid, Option<bool>, Option<bool>, bool, Option<bool>, bool);
    let rows: Vec<Row> = sqlx::query_as(FACTS)
        .bind(uuids)
        .bind(telling.as_secs_f64() + 1.0)
        .fetch_all(pool)
        .await?;
    let fact = |(uuid, handled, overdue, owed, owed_in_vain, given_up): Row| {
        let fact = match (handled == Some(true), owed) {
            (true, true) if owed_in_vain == Some(true) => Fact::Untold,
            (true, true) => Fact::Telling,
            (true, false) if overdue == Some(true) => Fact::Untold,
            (true, false) => Fact::Telling,
            (false, _) if given_up => Fact::GivenUp,
            (false, _) => Fact::Unknown,
        };
        (uuid, fact)
    };
    Ok(rows.into_iter().map(fact).collect())
}

pub(super) async fn tombstones(pool: &PgPool, uuids: &[Uuid]) -> Result<(), sqlx::Error> {
    sqlx::query(TOMBSTONES)
        .bind(uuids)
        .execute(pool)
        .await
        .map(drop)
}

pub(super) async fn verdicts(
    pool: &PgPool,
    uuids: &[Uuid],
) -> Result<HashMap<Uuid, Verdict>, sqlx::Error> {
    let rows: Vec<(Uuid, String, Option<String>, bool)> =
        sqlx::query_as(VERDICTS).bind(uuids).fetch_all(pool).await?;
    let verdict = |(uuid, status, reason, given_up): (Uuid, String, _, _)| {
        let verdict = match status.as_str() {
            "SUCCEED" => Verdict::Handled(Outcome::Succeed, None),
            "FAILED" => Verdict::Handled(Outcome::Failed, reason),
            _ => Verdict::Refused { given_up },
        };
        (uuid, verdict)
    };
    Ok(rows.into_iter().map(verdict).collect())
}

/// The listener gave a message up, after everything else was rolled back.
pub(super) async fn failed(
    tx: &mut PgConnection,
    uuid: Option<Uuid>,
    message_id: Uuid,
    failure: &Failure,
) -> Result<(), sqlx::Error> {
    sqlx::query(FAILED)
        .bind(uuid)
        .bind(message_id)
        .bind(failure.code())
        .bind(failure.message())
        .execute(tx)
        .await
        .map(drop)
}

/// The one call back came to nothing.
pub(super) async fn untold(pool: &PgPool, uuid: Uuid, error: &str) -> Result<(), sqlx::Error> {
    sqlx::query(UNTOLD)
        .bind(uuid)
        .bind(error)
        .execute(pool)
        .await
        .map(drop)
}
