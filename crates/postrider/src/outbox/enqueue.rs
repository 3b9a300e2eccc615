//! Enqueuing one message in the caller's transaction.

use sqlx::PgConnection;

use super::Message;
use super::json_text::JsonText;
use crate::Result;

/// Most messages are a topic and a payload, due at once: the fewer parameters, the faster.
const INSERT_BARE: &str = "
insert into postrider.outbox (topic, payload) values ($1, $2) returning id";

/// Messages without keys depend on no other rows: one plain insert.
const INSERT: &str = "
insert into postrider.outbox (due, topic, payload, headers, trace)
values (now() + make_interval(secs => $1), $2, $3, $4, $5)
returning id";

/// Keys need a lock first and a fresh snapshot after it: the function does both in one round trip.
const ENQUEUE_KEYED: &str = "
select id, duplicate from postrider.enqueue_checked($1, $2, $3, $4, $5, make_interval(secs => $6), $7)";

/// One call after the other, in the order of the arrays.
const ENQUEUE_MANY_KEYED: &str = "
select e.id, e.duplicate
from unnest($1::text[], $2::json[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[])
        u(topic, payload, ordering_key, dedupe_key, headers, delay, trace),
    postrider.enqueue_checked(u.topic, u.payload, u.ordering_key, u.dedupe_key, u.headers::jsonb,
                              make_interval(secs => u.delay), u.trace) e";

/// The result of enqueuing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Id of the message, or of the unfinished message with the same dedupe key.
    pub id: i64,
    /// Whether such a message existed already.
    pub duplicate: bool,
}

/// Enqueues a message in the caller's transaction: it exists if and only if that transaction commits.
pub async fn enqueue(transaction: &mut PgConnection, message: &Message) -> Result<Receipt> {
    if message.is_bare() {
        let id = sqlx::query_scalar(INSERT_BARE)
            .bind(&message.topic)
            .bind(JsonText(message.payload.get()))
            .fetch_one(transaction)
            .await?;
        return Ok(Receipt {
            id,
            duplicate: false,
        });
    }
    let headers = message.headers.as_ref();
    let delay = message.delay.as_secs_f64();
    if !message.is_keyed() {
        let id = sqlx::query_scalar(INSERT)
            .bind(delay)
            .bind(&message.topic)
            .bind(JsonText(message.payload.get()))
            .bind(headers)
            .bind(&message.trace)
            .fetch_one(transaction)
            .await?;
        return Ok(Receipt {
            id,
            duplicate: false,
        });
    }
    let (id, duplicate) = sqlx::query_as(ENQUEUE_KEYED)
        .bind(&message.topic)
        .bind(JsonText(message.payload.get()))
        .bind(&message.ordering_key)
        .bind(&message.dedupe_key)
        .bind(headers)
        .bind(delay)
        .bind(&message.trace)
        .fetch_one(transaction)
        .await?;
    Ok(Receipt { id, duplicate })
}

/// Enqueues messages with keys in one round trip; receipts are in the same order.
///
/// The messages must be sorted by [`lock_order`], so that two batches can't deadlock.
pub(super) async fn enqueue_keyed(
    transaction: &mut PgConnection,
    messages: &[&Message],
) -> Result<Vec<Receipt>> {
    let rows: Vec<(i64, bool)> = sqlx::query_as(ENQUEUE_MANY_KEYED)
        .bind(column(messages, |m| m.topic.as_str()))
        .bind(column(messages, |m| JsonText(m.payload.get())))
        .bind(column(messages, |m| m.ordering_key.as_deref()))
        .bind(column(messages, |m| m.dedupe_key.as_deref()))
        .bind(column(messages, Message::header_text))
        .bind(column(messages, |m| m.delay.as_secs_f64()))
        .bind(column(messages, |m| m.trace.as_deref()))
        .fetch_all(transaction)
        .await?;
    let receipt = |(id, duplicate)| Receipt { id, duplicate };
    Ok(rows.into_iter().map(receipt).collect())
}

/// The sort key of messages with keys, before they take their locks.
pub(super) fn lock_order(message: &Message) -> (Option<&str>, Option<&str>) {
    (
        message.ordering_key.as_deref(),
        message.dedupe_key.as_deref(),
    )
}

/// One value per message, to bind as an array.
pub(super) fn column<'m, T>(messages: &[&'m Message], of: impl Fn(&'m Message) -> T) -> Vec<T> {
    messages.iter().map(|message| of(message)).collect()
}
