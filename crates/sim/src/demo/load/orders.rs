//! Load on orders: each has a key, some are posted twice, and one is for a symbol that the broker does not list yet.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Accepted, Progress, Run, keys};
use crate::demo::{
    Error,
    checker::{Effect, Evidence},
    parties::UNLISTED,
};

const NAME: &str = "orders";
const PER_SECOND: u64 = 10;

/// Every Nth request is sent twice.
const DUPLICATE_EVERY: u64 = 5;

/// The load.
pub struct Orders {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<Value>,
}

impl Orders {
    pub fn new(run: Arc<Run>) -> Self {
        Self {
            planned: run.planned(PER_SECOND),
            run,
            accepted: Accepted::new(),
        }
    }

    pub async fn submit(&self) -> Result<(), Error> {
        let mut pace = self.run.pace(self.planned);
        for number in 0..self.planned {
            pace.tick().await;
            let order = self.order(number);
            let times = if number.is_multiple_of(DUPLICATE_EVERY) {
                2
            } else {
                1
            };
            for _ in 0..times {
                self.run.client.post("/do/order", &order).await?;
            }
            self.accepted.insert(self.key(number), order);
        }
        Ok(())
    }

    fn key(&self, number: u64) -> String {
        format!("{}-order-{number}", self.run.name)
    }

    /// The number of the order that the broker rejects at first.
    const fn rejected(&self) -> u64 {
        self.planned / 4
    }

    fn order(&self, number: u64) -> Value {
        let symbol = match number {
            _ if number == self.rejected() => UNLISTED,
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

    /// Redrives the rejected order.
    pub async fn redrive(&self) -> Result<(), Error> {
        let path = format!("/do/order/{}/redrive", self.key(self.rejected()));
        let body = json!({ "allow_stale": true, "reason": "the symbol is listed now" });
        self.run.client.post(&path, &body).await?;
        Ok(())
    }

    pub fn progress(&self) -> Progress {
        Progress {
            service: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: self.run.parties.broker.orders().len() as u64,
            retried: self.retried() as u64,
            dead: 0,
            blocked: 1,
        }
    }

    fn retried(&self) -> usize {
        let calls = self.run.parties.broker.calls();
        calls.values().filter(|calls| **calls > 1).count()
    }

    /// The broker's accepted orders, each as often as it was accepted.
    pub fn evidence(&self) -> Evidence {
        let accepted = self.accepted.all();
        let mut effects = Vec::new();
        for (item, order) in self.run.parties.broker.orders() {
            let submitted = accepted.get(&item);
            let same = |field: &str| {
                submitted.is_some_and(|submitted| {
                    as_text(&submitted[field]) == as_text(&order.request[field])
                })
            };
            let correct = ["account", "symbol", "side", "quantity"]
                .iter()
                .all(|field| same(field));
            effects.extend((0..order.posts).map(|_| Effect {
                item: item.clone(),
                correct,
            }));
        }
        Evidence {
            service: NAME,
            accepted: keys(&accepted),
            effects,
            retried: self.retried(),
            ..Evidence::default()
        }
    }
}

/// A quantity is equal as a string and as a number.
fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
