//! Load on payments: each has a uuid of the client's, some are posted twice, and the link for the wallet's callbacks
//! loses calls.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Accepted, Progress, Run, keys};
use crate::demo::{
    Error,
    checker::{Effect, Evidence},
};

const NAME: &str = "payments";
const PER_SECOND: u64 = 15;
const ACCOUNTS: u64 = 4;

/// The opening balance of each account, in cents.
const OPENING_BALANCE: u64 = 1_000_000_000;

/// Every Nth request is sent twice.
const DUPLICATE_EVERY: u64 = 5;

/// A submitted payment.
#[derive(Debug, Clone)]
struct Payment {
    account: String,
    cents: u64,
}

/// The load.
pub struct Payments {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<Payment>,
}

impl Payments {
    pub fn new(run: Arc<Run>) -> Self {
        Self {
            planned: run.planned(PER_SECOND),
            run,
            accepted: Accepted::new(),
        }
    }

    pub async fn submit(&self) -> Result<(), Error> {
        for number in 0..ACCOUNTS {
            let body = json!({ "account_id": self.account(number), "currency": "USD", "balance": dollars(OPENING_BALANCE) });
            self.run.client.post("/wallet/accounts", &body).await?;
        }
        let mut pace = self.run.pace(self.planned);
        for number in 0..self.planned {
            pace.tick().await;
            let uuid = Uuid::new_v4().to_string();
            let payment = Payment {
                account: self.account(number % ACCOUNTS),
                cents: 100 + number % 900,
            };
            let body = json!({
                "uuid": uuid,
                "account_id": payment.account,
                "amount": dollars(payment.cents),
                "currency": "USD",
            });
            let times = if number.is_multiple_of(DUPLICATE_EVERY) {
                2
            } else {
                1
            };
            for _ in 0..times {
                self.run.client.post("/payments", &body).await?;
            }
            self.accepted.insert(uuid, payment);
        }
        Ok(())
    }

    fn account(&self, number: u64) -> String {
        format!("{}-account-{number}", self.run.name)
    }

    pub fn progress(&self) -> Progress {
        let callbacks = self.run.parties.callback.callbacks();
        Progress {
            service: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: callbacks.values().filter(|c| c.delivered).count() as u64,
            retried: callbacks.values().filter(|c| c.calls > 1).count() as u64,
            dead: 0,
            blocked: 0,
        }
    }

    /// The wallet's entries, and whether the orchestrator was told the result of each payment.
    pub async fn evidence(&self) -> Result<Evidence, Error> {
        let accepted = self.accepted.all();
        let callbacks = self.run.parties.callback.callbacks();
        let mut effects = Vec::new();
        let mut violations = Vec::new();
        for number in 0..ACCOUNTS {
            let account = self.account(number);
            let statuses = self.statuses(&account).await?;
            let mut spent = 0;
            for entry in self
                .pages(&format!("/wallet/accounts/{account}/entries?"))
                .await?
            {
                if entry["kind"] != "payment" {
                    continue;
                }
                let item = text(&entry, "uuid");
                let deducted = format!(
                    "-{}",
                    accepted
                        .get(&item)
                        .map_or_else(String::new, |p| dollars(p.cents))
                );
                let payment = accepted
                    .get(&item)
                    .filter(|payment| payment.account == account);
                let delivered = callbacks.get(&item).is_some_and(|c| c.delivered);
                let correct = payment.is_some()
                    && text(&entry, "amount") == deducted
                    && delivered
                    && statuses
                        .get(&item)
                        .is_some_and(|status| status == "SUCCEED");
                spent += payment.map_or(0, |payment| payment.cents);
                effects.push(Effect { item, correct });
            }
            let view = self
                .run
                .client
                .get(&format!("/wallet/accounts/{account}"))
                .await?;
            let (balance, expected) = (text(&view, "balance"), dollars(OPENING_BALANCE - spent));
            if balance != expected {
                violations.push(format!(
                    "{account} has a balance of {balance} instead of {expected}"
                ));
            }
        }
        Ok(Evidence {
            service: NAME,
            accepted: keys(&accepted),
            effects,
            retried: callbacks.values().filter(|c| c.calls > 1).count(),
            violations,
            ..Evidence::default()
        })
    }

    /// The status of each payment of an account, by uuid.
    async fn statuses(&self, account: &str) -> Result<BTreeMap<String, String>, Error> {
        let payments = self
            .pages(&format!("/payments?account_id={account}&"))
            .await?;
        let pair = |payment: &Value| (text(payment, "uuid"), text(payment, "status"));
        Ok(payments.iter().map(pair).collect())
    }

    /// Every item of a listing, page by page.
    async fn pages(&self, path: &str) -> Result<Vec<Value>, Error> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self
                .run
                .client
                .get(&format!("{path}limit=500{cursor}"))
                .await?;
            let Some(found) = page["items"].as_array() else {
                return Err(Error::failed(format!("{path} did not return a list")));
            };
            items.extend(found.iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else {
                return Ok(items);
            };
            cursor = format!("&cursor={next}");
        }
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn dollars(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
