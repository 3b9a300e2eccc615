//! Orders: each has a key, some are posted twice by a nervous client, and one is for a symbol that the broker does not
//! know yet.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Accepted, Glance, Run, names};
use crate::{
    cli::demo::{
        checker::{Effect, Witness},
        parties::broker::UNLISTED,
    },
    exit::Failure,
};

const NAME: &str = "orders";
const A_SECOND: u64 = 10;

/// Every so-maniest request is made twice.
const NERVOUS: u64 = 5;

/// The act.
pub struct Orders {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<Value>,
}

impl Orders {
    pub fn new(run: Arc<Run>) -> Self {
        Self {
            planned: run.planned(A_SECOND),
            run,
            accepted: Accepted::new(),
        }
    }

    pub async fn ask(&self) -> Result<(), Failure> {
        let mut pace = self.run.pace(self.planned);
        for number in 0..self.planned {
            pace.tick().await;
            let order = self.order(number);
            let times = if number.is_multiple_of(NERVOUS) { 2 } else { 1 };
            for _ in 0..times {
                self.run.door.post("/do/order", &order).await?;
            }
            self.accepted.note(self.key(number), order);
        }
        Ok(())
    }

    fn key(&self, number: u64) -> String {
        format!("{}-order-{number}", self.run.name)
    }

    /// The order that the broker rejects at first.
    const fn doomed(&self) -> u64 {
        self.planned / 4
    }

    fn order(&self, number: u64) -> Value {
        let symbol = match number {
            _ if number == self.doomed() => UNLISTED,
            _ => ["ACME", "INITECH", "HOOLI"][(number % 3) as usize],
        };
        json!({
            "idempotency_key": self.key(number),
            "account": format!("A{}", number % 5),
            "symbol": symbol,
            "side": if number.is_multiple_of(2) { "buy" } else { "sell" },
            "quantity": (number % 90 + 1).to_string(),
            "type": "market",
        })
    }

    /// The broker's reason is gone: the order may go.
    pub async fn redrive(&self) -> Result<(), Failure> {
        let path = format!("/do/order/{}/redrive", self.key(self.doomed()));
        let body = json!({ "allow_stale": true, "reason": "the symbol is listed now" });
        self.run.door.post(&path, &body).await?;
        Ok(())
    }

    pub fn glance(&self) -> Glance {
        Glance {
            name: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: self.run.parties.broker.booked().len() as u64,
            retried: self.retried() as u64,
            dead: 0,
            blocked: 1,
        }
    }

    fn retried(&self) -> usize {
        let calls = self.run.parties.broker.calls();
        calls.values().filter(|calls| **calls > 1).count()
    }

    /// The broker's log, where an order stands as often as it was handed over and taken.
    pub fn witness(&self) -> Witness {
        let accepted = self.accepted.all();
        let mut effects = Vec::new();
        for (item, booked) in self.run.parties.broker.booked() {
            let asked = accepted.get(&item);
            let same = |field: &str| {
                asked.is_some_and(|asked| as_text(&asked[field]) == as_text(&booked.request[field]))
            };
            let right = ["account", "symbol", "side", "quantity"]
                .iter()
                .all(|field| same(field));
            effects.extend((0..booked.posts).map(|_| Effect {
                item: item.clone(),
                right,
            }));
        }
        Witness {
            service: NAME,
            accepted: names(&accepted),
            effects,
            retried: self.retried(),
            ..Witness::default()
        }
    }
}

/// A quantity is the same as a text and as a number.
fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
