//! The work of the demo: letters, some of which are trouble.

use std::time::Duration;

use postrider_engine::{
    failure::{Category, Failure},
    lease::Item,
    outbox::Message,
    retry::{Policy, PolicyError},
    runtime::{BoxError, Handled, Handler, Verdict},
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

/// The kind of work.
pub const TOPIC: &str = "demo.letter";

/// Where deliveries are noted: append-only and without any unique key, so that doing one twice would show.
pub const SCHEMA: &str = "
create schema if not exists demo;
create table if not exists demo.delivered (letter bigint not null, worker text not null, at timestamptz not null default now());
create table if not exists demo.known_address (address text primary key);
truncate demo.delivered, demo.known_address";

const DELIVER: &str = "insert into demo.delivered (letter, worker) values ($1, $2)";

/// One letter in ten finds nobody at home at first; one in a thousand has an address that nobody knows.
const ABSENT: u32 = 10;
const UNKNOWN: u32 = 1000;

/// The street that is not on the map yet.
pub const NEW_STREET: &str = "New Street";

/// How long the walk to a door takes.
const WALK: Duration = Duration::from_millis(2);

/// What a letter says on its envelope.
#[derive(Debug, Serialize, Deserialize)]
pub struct Letter {
    number: u32,
    address: String,
}

/// The letter of this number.
pub fn letter(number: u32) -> postrider_engine::Result<Message> {
    let unknown = number % UNKNOWN == UNKNOWN - 1;
    let address = if unknown {
        NEW_STREET.to_owned()
    } else {
        format!("{number} Main Street")
    };
    Message::new(TOPIC, &Letter { number, address })
}

/// How a letter is delivered by the worker of this name.
pub fn handler(pool: PgPool, worker: String) -> Result<Handler, PolicyError> {
    let policy = Policy::exponential(Duration::from_millis(100), Duration::from_secs(1), 3)?;
    let handler = Handler::new(move |item| deliver(pool.clone(), worker.clone(), item));
    Ok(handler.policy(policy).concurrency(8))
}

async fn deliver(pool: PgPool, worker: String, item: Item) -> Result<Handled, BoxError> {
    let letter: Letter = item.read()?;
    tokio::time::sleep(WALK).await;
    if item.attempts == 0 && letter.number % ABSENT == ABSENT - 1 && letter.address != NEW_STREET {
        let failure =
            Failure::with_category("NOBODY_HOME", Category::Network, "nobody opened the door");
        return Ok(Verdict::retry(failure).into());
    }
    if letter.address == NEW_STREET && !is_known(&pool, &letter.address).await? {
        let message = format!("no such address: {}", letter.address);
        return Ok(Verdict::Dead(Failure::with_category(
            "NO_SUCH_ADDRESS",
            Category::Data,
            message,
        ))
        .into());
    }
    // The delivery is noted in the transaction that settles the letter: both happen, or neither does.
    Ok(Handled::from(Verdict::Done).with(move |transaction| {
        Box::pin(async move {
            sqlx::query(DELIVER)
                .bind(item.id)
                .bind(worker)
                .execute(transaction)
                .await?;
            Ok(())
        })
    }))
}

async fn is_known(pool: &PgPool, address: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select exists (select from demo.known_address where address = $1)")
        .bind(address)
        .fetch_one(pool)
        .await
}
