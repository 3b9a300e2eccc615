//! One message in the caller's transaction.

use sqlx::PgConnection;

use super::Message;
use super::json_text::JsonText;
use crate::Result;

/// Most messages are a topic and a payload, due at once: the less there is to bind, the faster.
const INSERT_BARE: &str = "
insert into postrider.outbox (topic, payload) values ($1, $2) returning id";

/// Messages without keys need no look at other rows: one plain insert.
const INSERT: &str = "
insert into postrider.outbox (due, topic, payload, headers, trace)
values (now() + make_interval(secs => $1), $2, $3, $4, $5)
returning id";

/// Keys need a lock first and a fresh look after it: the function does both in one round trip.
const CALL: &str = "
select id, duplicate from postrider.enqueue(
    $1, $2::text::jsonb, ordering_key => $3, dedupe_key => $4, headers => $5, delay => make_interval(secs => $6), trace => $7)";

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Its id, or that of the unfinished message with the same dedupe key.
    pub id: i64,
    /// Was there such a message already?
    pub duplicate: bool,
}

/// Enqueues a message in the caller's transaction: it counts if and only if that transaction commits.
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
    let (id, duplicate) = sqlx::query_as(CALL)
        .bind(&message.topic)
        .bind(message.payload.get())
        .bind(&message.ordering_key)
        .bind(&message.dedupe_key)
        .bind(headers)
        .bind(delay)
        .bind(&message.trace)
        .fetch_one(transaction)
        .await?;
    Ok(Receipt { id, duplicate })
}
