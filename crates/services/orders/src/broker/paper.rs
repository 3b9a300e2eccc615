//! The paper broker: what a broker does with client order ids, without a market behind it.
//!
//! One client order id is one order, however often it comes. The book is in the database (the program's default, so
//! that the broker's memory survives the program's death as a real broker's would) or in memory (simulator, tests).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::PgPool;

use super::{Act, Broker, Kind, Refusal, Script};

const BOOK: &str = "
insert into orders.paper_orders (client_order_id, request) values ($1, $2) on conflict (client_order_id) do nothing";

const BOOKED: &str = "select broker_order_id from orders.paper_orders where client_order_id = $1";

/// An order in a book that is kept in memory.
#[derive(Debug, Clone, Serialize)]
pub struct Booked {
    /// The broker's own name for it.
    pub broker_order_id: String,
    /// How often it was handed over.
    pub posts: u32,
    /// What was handed over first.
    pub request: Value,
    /// The broker will deny that it knows it.
    pub forgotten: bool,
}

enum Book {
    Memory(Mutex<BTreeMap<String, Booked>>),
    Database(PgPool),
}

/// A broker that takes everything, unless its script says otherwise.
pub struct PaperBroker {
    book: Book,
    script: Script,
}

/// What the broker does with an order that was handed over.
pub(super) enum Reaction {
    Answer(Value),
    Reject(String),
    NotOk(String),
    Fail(u16, Option<u64>),
    HangUp,
}

impl PaperBroker {
    /// With its book in the database.
    #[must_use]
    pub fn in_database(pool: PgPool) -> Self {
        Self {
            book: Book::Database(pool),
            script: Script::default(),
        }
    }

    /// With its book in memory, and a script.
    #[must_use]
    pub fn in_memory(script: Script) -> Self {
        Self {
            book: Book::Memory(Mutex::default()),
            script,
        }
    }

    /// The script, to change it.
    #[must_use]
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Everything in a book that is kept in memory, by client order id.
    #[must_use]
    pub fn booked(&self) -> BTreeMap<String, Booked> {
        match &self.book {
            Book::Memory(book) => book.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Book::Database(_) => BTreeMap::new(),
        }
    }

    pub(super) async fn receive(&self, order: Value) -> Result<Reaction, sqlx::Error> {
        let Some(id) = order.get("client_order_id").and_then(Value::as_str) else {
            return Ok(Reaction::Reject("CLIENT_ORDER_ID_MISSING".to_owned()));
        };
        let id = id.to_owned();
        let act = self.script.act(&order);
        Ok(match act {
            Act::Reject { reason_code } => Reaction::Reject(reason_code),
            Act::NotOk { reason_code } => Reaction::NotOk(reason_code),
            Act::Fail {
                status,
                retry_after,
            } => Reaction::Fail(status, retry_after),
            Act::Accept => Reaction::Answer(self.book(&id, order, false).await?),
            Act::Forget => Reaction::Answer(self.book(&id, order, true).await?),
            Act::Slow { wait } => {
                tokio::time::sleep(wait.min(Duration::from_secs(3600))).await;
                Reaction::Answer(self.book(&id, order, false).await?)
            }
            Act::FailAfter { status } => {
                self.book(&id, order, false).await?;
                Reaction::Fail(status, None)
            }
            Act::HangUp => {
                self.book(&id, order, false).await?;
                Reaction::HangUp
            }
        })
    }

    pub(super) async fn known(&self, id: &str) -> Result<Option<Value>, sqlx::Error> {
        match &self.book {
            Book::Memory(book) => {
                let book = book.lock().unwrap_or_else(PoisonError::into_inner);
                let booked = book.get(id).filter(|booked| !booked.forgotten);
                Ok(booked.map(|booked| receipt(&booked.broker_order_id)))
            }
            Book::Database(pool) => {
                let number: Option<i64> = sqlx::query_scalar(BOOKED)
                    .bind(id)
                    .fetch_optional(pool)
                    .await?;
                Ok(number.map(|number| receipt(&paper_id(number))))
            }
        }
    }

    async fn book(&self, id: &str, order: Value, forget: bool) -> Result<Value, sqlx::Error> {
        match &self.book {
            Book::Memory(book) => {
                let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
                let next = i64::try_from(book.len())
                    .unwrap_or(i64::MAX)
                    .saturating_add(1);
                let booked = book.entry(id.to_owned()).or_insert_with(|| Booked {
                    broker_order_id: paper_id(next),
                    posts: 0,
                    request: order,
                    forgotten: forget,
                });
                booked.posts += 1;
                Ok(receipt(&booked.broker_order_id))
            }
            Book::Database(pool) => {
                sqlx::query(BOOK).bind(id).bind(order).execute(pool).await?;
                let number: i64 = sqlx::query_scalar(BOOKED).bind(id).fetch_one(pool).await?;
                Ok(receipt(&paper_id(number)))
            }
        }
    }
}

fn paper_id(number: i64) -> String {
    format!("paper-{number}")
}

fn receipt(broker_order_id: &str) -> Value {
    json!({ "broker_order_id": broker_order_id, "status": "ok" })
}

impl Broker for PaperBroker {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, Refusal>> {
        async move {
            match self.receive(order).await.map_err(|e| away(&e))? {
                Reaction::Answer(answer) => Ok(answer),
                Reaction::Reject(reason) => Err(Refusal::rejected(
                    &reason,
                    "the paper broker rejected the order",
                )),
                Reaction::NotOk(reason) => Err(Refusal::not_ok(&reason)),
                Reaction::Fail(status, wait) => {
                    let wait = wait.map(Duration::from_secs);
                    Err(Refusal::status(status, Kind::Uncertain, wait))
                }
                Reaction::HangUp => {
                    let message = "the paper broker broke the connection";
                    Err(Refusal::network("NETWORK_ERROR", Kind::Uncertain, message))
                }
            }
        }
        .boxed()
    }

    fn look_up<'a>(
        &'a self,
        client_order_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Refusal>> {
        async move { self.known(client_order_id).await.map_err(|e| away(&e)) }.boxed()
    }
}

/// The broker's own database is away: for us that is a broker that does not answer.
fn away(error: &sqlx::Error) -> Refusal {
    let message = format!("the paper broker's book can't be reached: {error}");
    Refusal::network("NETWORK_ERROR", Kind::Uncertain, message)
}
