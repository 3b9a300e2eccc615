//! Publishing: one call per batch; an invalid message fails alone.

use std::collections::HashSet;

use postrider::failure::{Category, Failure};
use postrider::internal::database_is_transient;
use postrider::transport::{Message, Published};
use sqlx::{PgConnection, PgPool};

const PUBLISH: &str = "select status from postrider.publish($1, $2, $3, $4, $5, $6) order by place";

/// Messages per call. Each key takes a lock, and the server has only some thousands in total.
const MAX_BATCH: usize = 500;
/// Bytes per call.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Publishes in the caller's transaction.
pub(super) async fn publish_in(
    connection: &mut PgConnection,
    batch: &[Message],
) -> Result<Vec<Published>, sqlx::Error> {
    let mut answers = Vec::with_capacity(batch.len());
    for chunk in chunks(batch) {
        answers.extend(call(connection, chunk).await?);
    }
    Ok(answers)
}

/// Publishes in transactions of its own.
pub(super) async fn publish(pool: &PgPool, batch: &[Message]) -> Vec<Published> {
    let mut answers = Vec::with_capacity(batch.len());
    for chunk in chunks(batch) {
        match in_pool(pool, chunk).await {
            Ok(published) => answers.extend(published),
            Err(error) if database_is_transient(&error) => {
                // Later chunks must not overtake this one.
                answers.resize(batch.len(), Published::Unavailable(unavailable(&error)));
                break;
            }
            Err(_) => answers.extend(one_by_one(pool, chunk).await),
        }
    }
    answers
}

/// Publishes one at a time, because the database rejects a message of the batch. Messages behind it of the same key are held
/// back.
async fn one_by_one(pool: &PgPool, batch: &[Message]) -> Vec<Published> {
    let mut answers = Vec::with_capacity(batch.len());
    let mut held_back: HashSet<(&str, &str)> = HashSet::new();
    for message in batch {
        let key = message.key.as_deref().map(|key| (&*message.topic, key));
        if key.is_some_and(|key| held_back.contains(&key)) {
            let text =
                "held back: an earlier message of the same key was not published; both are retried";
            answers.push(Published::Unavailable(Failure::new("BEHIND", text)));
            continue;
        }
        let answer = match in_pool(pool, std::slice::from_ref(message)).await {
            Ok(published) => published
                .into_iter()
                .next()
                .unwrap_or(Published::Unroutable),
            Err(error) if database_is_transient(&error) => {
                Published::Unavailable(unavailable(&error))
            }
            Err(error) => Published::Failed(rejected(&error)),
        };
        if answer != Published::Confirmed {
            held_back.extend(key);
        }
        answers.push(answer);
    }
    answers
}

async fn in_pool(pool: &PgPool, batch: &[Message]) -> Result<Vec<Published>, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    call(&mut connection, batch).await
}

async fn call(
    connection: &mut PgConnection,
    batch: &[Message],
) -> Result<Vec<Published>, sqlx::Error> {
    let columns = Columns::new(batch);
    let statuses: Vec<String> = sqlx::query_scalar(PUBLISH)
        .bind(columns.ids)
        .bind(columns.topics)
        .bind(columns.keys)
        .bind(columns.payloads)
        .bind(columns.headers)
        .bind(columns.traces)
        .fetch_all(connection)
        .await?;
    Ok(statuses
        .iter()
        .map(|status| match status.as_str() {
            "stored" => Published::Confirmed,
            _ => Published::Unroutable,
        })
        .collect())
}

/// A batch, column by column.
pub(super) struct Columns<'a> {
    pub ids: Vec<uuid::Uuid>,
    pub topics: Vec<&'a str>,
    pub keys: Vec<Option<&'a str>>,
    pub payloads: Vec<&'a str>,
    pub headers: Vec<Option<&'a str>>,
    pub traces: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    pub fn new(batch: &'a [Message]) -> Self {
        Self {
            ids: batch.iter().map(|m| m.id.uuid()).collect(),
            topics: batch.iter().map(|m| &*m.topic).collect(),
            keys: batch.iter().map(|m| m.key.as_deref()).collect(),
            payloads: batch.iter().map(|m| &*m.payload).collect(),
            headers: batch.iter().map(|m| m.headers.as_deref()).collect(),
            traces: batch.iter().map(|m| m.trace.as_deref()).collect(),
        }
    }
}

/// Splits the batch in order. A message above the byte limit is a chunk of its own.
fn chunks(batch: &[Message]) -> impl Iterator<Item = &[Message]> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |message: &&Message| {
            bytes += message.weight();
            bytes <= MAX_BATCH_BYTES
        };
        let count = rest.iter().take(MAX_BATCH).take_while(fits).count().max(1);
        let (chunk, later) = rest.split_at_checked(count)?;
        rest = later;
        Some(chunk)
    })
}

fn unavailable(error: &sqlx::Error) -> Failure {
    Failure::with_category("POSTGRES_UNAVAILABLE", Category::Network, error)
}

fn rejected(error: &sqlx::Error) -> Failure {
    Failure::with_category("POSTGRES_REFUSED", Category::Data, error)
}

#[cfg(test)]
mod tests {
    use postrider::transport::MessageId;

    use super::*;

    #[test]
    fn a_batch_is_split_by_count_and_by_bytes() {
        let message =
            |bytes: usize| Message::new(MessageId::new(uuid::Uuid::nil()), "t", "x".repeat(bytes));
        let sizes = |batch: &[Message]| chunks(batch).map(<[Message]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), Vec::<usize>::new());
        assert_eq!(sizes(&vec![message(1); 1_001]), [500, 500, 1]);
        assert_eq!(sizes(&vec![message(3 << 20); 5]), [2, 2, 1]);
        assert_eq!(sizes(&vec![message(9 << 20); 2]), [1, 1]);
    }
}
