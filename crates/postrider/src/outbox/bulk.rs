//! Enqueuing many messages in one transaction.

use std::fmt::Write as _;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row};

use super::Message;
use super::enqueue::{column, enqueue_keyed, lock_order};
use super::json_text::JsonText;
use crate::Result;

/// Number of messages from which COPY is faster than arrays.
pub const COPY_FROM: usize = 10_000;

/// Messages per statement: more than about a thousand gain nothing.
const CHUNK_SIZE: usize = 1_000;

/// Bytes per COPY message.
const COPY_BUFFER: usize = 256 * 1024;

const INSERT: &str = "
insert into postrider.outbox (due, topic, payload, headers, trace)
select now() + make_interval(secs => u.delay), u.topic, u.payload, u.headers::jsonb, u.trace
from unnest($1::float8[], $2::text[], $3::json[], $4::text[], $5::text[]) u(delay, topic, payload, headers, trace)";

/// Messages that are a topic and a payload, due at once: each array less is a function scan less.
const INSERT_BARE: &str = "
insert into postrider.outbox (topic, payload)
select u.topic, u.payload from unnest($1::text[], $2::json[]) u(topic, payload)";

/// The same for one topic, as in most batches: no function scan at all.
const INSERT_BARE_ONE_TOPIC: &str = "
insert into postrider.outbox (topic, payload)
select $1, unnest($2::json[])";

const COPY: &str = "copy postrider.outbox (due, topic, payload, headers, trace) from stdin";

/// The result of enqueuing many messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Enqueued {
    /// Number of new messages.
    pub new: usize,
    /// Number of messages whose dedupe key belongs to an unfinished message.
    pub duplicates: usize,
}

/// Enqueues many messages in the caller's transaction, in the order given.
///
/// Messages with keys take their locks in sorted order, so that two batches can't deadlock.
pub async fn enqueue_many(
    transaction: &mut PgConnection,
    messages: &[Message],
) -> Result<Enqueued> {
    let (mut keyed, plain): (Vec<&Message>, Vec<&Message>) =
        messages.iter().partition(|message| message.is_keyed());
    let mut enqueued = Enqueued {
        new: plain.len(),
        duplicates: 0,
    };
    if plain.len() >= COPY_FROM {
        copy(transaction, &plain).await?;
    } else {
        for chunk in plain.chunks(CHUNK_SIZE) {
            insert(transaction, chunk).await?;
        }
    }
    // Stable: messages of one ordering key keep their order.
    keyed.sort_by_key(|message| lock_order(message));
    for chunk in keyed.chunks(CHUNK_SIZE) {
        for receipt in enqueue_keyed(transaction, chunk).await? {
            if receipt.duplicate {
                enqueued.duplicates += 1;
            } else {
                enqueued.new += 1;
            }
        }
    }
    Ok(enqueued)
}

/// Inserts messages without keys in one statement; ids are in the same order.
pub(super) async fn insert_for_ids(
    connection: &mut PgConnection,
    messages: &[&Message],
) -> Result<Vec<i64>, sqlx::Error> {
    let text = format!("{} returning id", statement(messages));
    let query = bound(sqlx::query(AssertSqlSafe(text)), messages);
    let rows = query.fetch_all(connection).await?;
    let mut ids = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<Vec<i64>, _>>()?;
    // Ids are generated in the order of the arrays.
    ids.sort_unstable();
    Ok(ids)
}

/// Inserts without returning ids, which would be sent row by row for nothing.
async fn insert(connection: &mut PgConnection, messages: &[&Message]) -> Result<(), sqlx::Error> {
    let query = bound(sqlx::query(statement(messages)), messages);
    query.execute(connection).await?;
    Ok(())
}

fn statement(messages: &[&Message]) -> &'static str {
    match (all_bare(messages), one_topic(messages)) {
        (true, Some(_)) => INSERT_BARE_ONE_TOPIC,
        (true, None) => INSERT_BARE,
        (false, _) => INSERT,
    }
}

fn one_topic<'m>(messages: &[&'m Message]) -> Option<&'m str> {
    let (first, others) = messages.split_first()?;
    let same = others.iter().all(|message| message.topic == first.topic);
    same.then_some(first.topic.as_str())
}

fn all_bare(messages: &[&Message]) -> bool {
    messages.iter().all(|message| message.is_bare())
}

fn bound<'q>(
    query: Query<'q, Postgres, PgArguments>,
    messages: &'q [&Message],
) -> Query<'q, Postgres, PgArguments> {
    let payloads = column(messages, |m| JsonText(m.payload.get()));
    if all_bare(messages)
        && let Some(topic) = one_topic(messages)
    {
        return query.bind(topic).bind(payloads);
    }
    let topics = column(messages, |m| m.topic.as_str());
    if all_bare(messages) {
        return query.bind(topics).bind(payloads);
    }
    query
        .bind(column(messages, |m| m.delay.as_secs_f64()))
        .bind(topics)
        .bind(payloads)
        .bind(column(messages, Message::header_text))
        .bind(column(messages, |m| m.trace.as_deref()))
}

async fn copy(connection: &mut PgConnection, messages: &[&Message]) -> Result<()> {
    // COPY takes values, not expressions: the due times need the database's clock first.
    let now: time::OffsetDateTime = sqlx::query_scalar("select now()")
        .fetch_one(&mut *connection)
        .await?;
    let mut copy = connection.copy_in_raw(COPY).await?;
    let mut buffer = String::with_capacity(COPY_BUFFER + 4096);
    for message in messages {
        line(&mut buffer, now, message);
        if buffer.len() >= COPY_BUFFER {
            copy.send(buffer.as_bytes()).await?;
            buffer.clear();
        }
    }
    copy.send(buffer.as_bytes()).await?;
    copy.finish().await?;
    Ok(())
}

fn line(buffer: &mut String, now: time::OffsetDateTime, message: &Message) {
    let due =
        now.saturating_add(time::Duration::try_from(message.delay).unwrap_or(time::Duration::MAX));
    let (date, clock) = (due.date(), due.time());
    let (hour, minute, second, micro) = clock.as_hms_micro();
    // Writing to a string can't fail.
    let _ = write!(
        buffer,
        "{:04}-{:02}-{:02} {hour:02}:{minute:02}:{second:02}.{micro:06}+00\t",
        date.year(),
        u8::from(date.month()),
        date.day(),
    );
    escape(buffer, &message.topic);
    buffer.push('\t');
    escape(buffer, message.payload.get());
    buffer.push('\t');
    match message.header_text() {
        Some(headers) => escape(buffer, &headers),
        None => buffer.push_str("\\N"),
    }
    buffer.push('\t');
    buffer.push_str(message.trace.as_deref().unwrap_or("\\N"));
    buffer.push('\n');
}

/// COPY's text format escapes the backslash and the separators.
fn escape(buffer: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => buffer.push_str("\\\\"),
            '\n' => buffer.push_str("\\n"),
            '\r' => buffer.push_str("\\r"),
            '\t' => buffer.push_str("\\t"),
            c => buffer.push(c),
        }
    }
}
