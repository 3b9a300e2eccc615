//! Payments: each has a uuid of the client's, some are posted twice, and the road on which the wallet tells how they
//! ended loses calls.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Accepted, Glance, Run, names};
use crate::{
    cli::demo::checker::{Effect, Witness},
    exit::{Exit, Failure},
};

const NAME: &str = "payments";
const A_SECOND: u64 = 15;
const ACCOUNTS: u64 = 4;

/// What each account begins with, in cents.
const BALANCE: u64 = 1_000_000_000;

/// Every so-maniest request is made twice.
const NERVOUS: u64 = 5;

/// What one payment asks for.
#[derive(Debug, Clone)]
struct Payment {
    account: String,
    cents: u64,
}

/// The act.
pub struct Payments {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<Payment>,
}

impl Payments {
    pub fn new(run: Arc<Run>) -> Self {
        Self {
            planned: run.planned(A_SECOND),
            run,
            accepted: Accepted::new(),
        }
    }

    pub async fn ask(&self) -> Result<(), Failure> {
        for number in 0..ACCOUNTS {
            let body = json!({ "account_id": self.account(number), "currency": "USD", "balance": dollars(BALANCE) });
            self.run.door.post("/wallet/accounts", &body).await?;
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
            let times = if number.is_multiple_of(NERVOUS) { 2 } else { 1 };
            for _ in 0..times {
                self.run.door.post("/payments", &body).await?;
            }
            self.accepted.note(uuid, payment);
        }
        Ok(())
    }

    fn account(&self, number: u64) -> String {
        format!("{}-account-{number}", self.run.name)
    }

    pub fn glance(&self) -> Glance {
        let seen = self.run.parties.callback.seen();
        Glance {
            name: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: seen.values().filter(|seen| seen.told).count() as u64,
            retried: seen.values().filter(|seen| seen.calls > 1).count() as u64,
            dead: 0,
            blocked: 0,
        }
    }

    /// The wallet's books, line by line, and how the orchestrator was told that each payment ended.
    pub async fn witness(&self) -> Result<Witness, Failure> {
        let accepted = self.accepted.all();
        let seen = self.run.parties.callback.seen();
        let mut effects = Vec::new();
        let mut complaints = Vec::new();
        for number in 0..ACCOUNTS {
            let account = self.account(number);
            let ended = self.statuses(&account).await?;
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
                let told = seen.get(&item).is_some_and(|seen| seen.told);
                let right = payment.is_some()
                    && text(&entry, "amount") == deducted
                    && told
                    && ended.get(&item).is_some_and(|status| status == "SUCCEED");
                spent += payment.map_or(0, |payment| payment.cents);
                effects.push(Effect { item, right });
            }
            let view = self
                .run
                .door
                .get(&format!("/wallet/accounts/{account}"))
                .await?;
            let (holds, left) = (text(&view, "balance"), dollars(BALANCE - spent));
            if holds != left {
                complaints.push(format!("{account} holds {holds}, and should hold {left}"));
            }
        }
        Ok(Witness {
            service: NAME,
            accepted: names(&accepted),
            effects,
            retried: seen.values().filter(|seen| seen.calls > 1).count(),
            complaints,
            ..Witness::default()
        })
    }

    /// How each payment of an account stands, by uuid.
    async fn statuses(&self, account: &str) -> Result<BTreeMap<String, String>, Failure> {
        let payments = self
            .pages(&format!("/payments?account_id={account}&"))
            .await?;
        let pair = |payment: &Value| (text(payment, "uuid"), text(payment, "status"));
        Ok(payments.iter().map(pair).collect())
    }

    /// Every item of a listing, page by page.
    async fn pages(&self, path: &str) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self
                .run
                .door
                .get(&format!("{path}limit=500{cursor}"))
                .await?;
            let Some(found) = page["items"].as_array() else {
                return Err(Failure::new(Exit::Failed, format!("{path} lists nothing")));
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
