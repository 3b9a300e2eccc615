//! The bare loop, without any guarantees: payments from memory, no claims, no leases, no checks except for errors.
//!
//! The statements are those of the service: publication by the transport in the same batches, then for each payment lock,
//! inbox with entries and balance, acknowledgement and commit, then the call.

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures_util::{TryStreamExt, stream};
use postrider::transport::{Message, MessageId, Published, Transport};
use postrider_transports::PostgresTransport;
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use crate::CONNECTIONS;

const BATCH: usize = 500;

const PAYMENTS: &str =
    "select id, uuid, payload::text, payload ->> 'account_id' from payments.outbox order by id";

const PUBLISHED: &str =
    "update payments.outbox set status = 'PUBLISHED', finished_at = now() where id = any($1)";

const LOCK: &str = "select account_id, currency, balance::text from wallet.account where account_id = $1 for no key update";

const DEDUCT: &str = "
with accepted as (
    insert into wallet.inbox (uuid, message_id, account_id, amount, currency, status)
    values ($1, $2, $3, 12.50, 'USD', 'SUCCEED')
    on conflict (uuid) do nothing
    returning uuid, account_id, amount, currency),
deducted as (
    update wallet.account a set balance = a.balance - t.amount from accepted t where a.account_id = t.account_id),
entries as (
    insert into wallet.entry (uuid, account_id, amount, currency, kind)
    select t.uuid, side.account_id, side.amount, t.currency, 'payment'
    from accepted t, lateral (values (t.account_id, - t.amount), ('system:payments', t.amount)) side(account_id, amount))
select count(*) from accepted";

const ACKNOWLEDGE: &str = "delete from postrider.delivery where id = $1";

const DELIVERIES: &str = "select message_id, id from postrider.delivery";

struct Payment {
    outbox: i64,
    uuid: Uuid,
    payload: String,
    account: String,
    message: Uuid,
}

pub async fn run(pool: &PgPool, wallet: &PgPool, base: &str) -> Result<()> {
    let rows: Vec<(i64, Uuid, String, String)> = sqlx::query_as(PAYMENTS).fetch_all(pool).await?;
    let payments: Vec<Payment> = rows
        .into_iter()
        .map(|(outbox, uuid, payload, account)| Payment {
            outbox,
            uuid,
            payload,
            account,
            message: Uuid::new_v4(),
        })
        .collect();
    let transport = PostgresTransport::new(pool.clone())?;
    for batch in payments.chunks(BATCH) {
        publish(&transport, pool, batch).await?;
    }
    let deliveries: Vec<(Uuid, i64)> = sqlx::query_as(DELIVERIES).fetch_all(pool).await?;
    let deliveries: Arc<std::collections::HashMap<Uuid, i64>> =
        Arc::new(deliveries.into_iter().collect());
    let client = reqwest::Client::new();
    stream::iter(payments.into_iter().map(anyhow::Ok))
        .try_for_each_concurrent(CONNECTIONS as usize, |payment| {
            let (client, deliveries) = (client.clone(), Arc::clone(&deliveries));
            async move {
                let delivery = deliveries.get(&payment.message).copied();
                deduct(wallet, &payment, delivery).await?;
                let path = format!("{base}/internal/requests/{}", payment.uuid);
                let body = json!({ "status": "SUCCEED", "reason": null });
                let answer = client.put(path).json(&body).send().await?;
                ensure!(answer.status().is_success(), "{}", answer.status());
                answer.bytes().await?;
                Ok(())
            }
        })
        .await
}

async fn publish(transport: &PostgresTransport, pool: &PgPool, batch: &[Payment]) -> Result<()> {
    let messages: Vec<Message> = batch
        .iter()
        .map(|payment| {
            let id = MessageId::new(payment.message);
            Message::new(
                id,
                postrider_payments::requests::TOPIC,
                payment.payload.as_str(),
            )
        })
        .collect();
    let answers = transport.publish(&messages).await;
    ensure!(
        answers.iter().all(|answer| *answer == Published::Confirmed),
        "not published"
    );
    let ids: Vec<i64> = batch.iter().map(|payment| payment.outbox).collect();
    sqlx::query(PUBLISHED).bind(ids).execute(pool).await?;
    Ok(())
}

async fn deduct(pool: &PgPool, payment: &Payment, delivery: Option<i64>) -> Result<()> {
    let mut tx = pool.begin().await?;
    sqlx::query(LOCK)
        .bind(&payment.account)
        .fetch_one(&mut *tx)
        .await?;
    sqlx::query(DEDUCT)
        .bind(payment.uuid)
        .bind(payment.message)
        .bind(&payment.account)
        .fetch_one(&mut *tx)
        .await?;
    sqlx::query(ACKNOWLEDGE)
        .bind(delivery)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}
