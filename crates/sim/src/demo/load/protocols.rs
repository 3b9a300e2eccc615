//! Load on protocols: documents go through two stages to a reviewer, who approves them; one is under embargo at first.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use postrider_protocols::model::Criterion;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Accepted, Progress, Run, keys};
use crate::{
    demo::{
        Error,
        checker::{Effect, Evidence},
        parties::EMBARGOED,
    },
    lock,
};

const NAME: &str = "protocols";
const PER_SECOND: u64 = 1;

/// How often the reviewer lists protocols to review.
const REVIEW_INTERVAL: Duration = Duration::from_millis(500);

/// The load.
pub struct Protocols {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<()>,
    approved: Mutex<BTreeSet<String>>,
    /// The protocol under embargo.
    embargoed: OnceLock<String>,
}

impl Protocols {
    pub fn new(run: Arc<Run>) -> Self {
        Self {
            planned: run.planned(PER_SECOND),
            run,
            accepted: Accepted::new(),
            approved: Mutex::default(),
            embargoed: OnceLock::new(),
        }
    }

    pub async fn submit(&self) -> Result<(), Error> {
        let mut pace = self.run.pace(self.planned);
        for number in 0..self.planned {
            pace.tick().await;
            let embargoed = number == self.planned / 4;
            let word = if embargoed { EMBARGOED } else { "Trial" };
            let title = format!("{word}-{number}-of-{}", self.run.name);
            let request = self
                .run
                .client
                .request(Method::POST, &format!("/protocols?title={title}"))
                .header("content-type", "text/plain")
                .body(document(number));
            let no_outage = self.run.outage.read().await;
            let answer = self.run.client.once(request).await?;
            drop(no_outage);
            let id = answer["id"].as_str().unwrap_or_default();
            if embargoed {
                // Set once: there is only one.
                let _ = self.embargoed.set(id.to_owned());
            }
            self.accepted.insert(id, ());
        }
        Ok(())
    }

    /// The reviewer: approves every protocol that is pending review.
    pub async fn review(&self) -> Infallible {
        loop {
            tokio::time::sleep(REVIEW_INTERVAL).await;
            // The next round covers what fails.
            let _ = self.approve_pending().await;
        }
    }

    async fn approve_pending(&self) -> Result<(), Error> {
        let path = "/protocols?status=pending_review&limit=500";
        let pending = self.run.client.get(path).await?;
        let accepted = self.accepted.all();
        for protocol in pending["items"].as_array().into_iter().flatten() {
            let id = protocol["id"].as_str().unwrap_or_default();
            if accepted.contains_key(id) {
                let path = format!("/protocols/{id}/review");
                let request = self.run.client.request(Method::POST, &path);
                let decision = json!({ "decision": "approve" });
                self.run.client.once(request.json(&decision)).await?;
                lock(&self.approved).insert(id.to_owned());
            }
        }
        Ok(())
    }

    /// Retries the protocol that was under embargo.
    pub async fn redrive(&self) -> Result<(), Error> {
        let Some(id) = self.embargoed.get() else {
            return Err(Error::failed("no protocol has failed"));
        };
        let path = format!("/protocols/{id}/retry");
        self.run.client.post(&path, &json!({})).await?;
        Ok(())
    }

    pub fn progress(&self) -> Progress {
        Progress {
            service: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: lock(&self.approved).len() as u64,
            retried: self.run.parties.stages.retried_protocols() as u64,
            dead: 0,
            blocked: 1,
        }
    }

    /// The criteria of completed protocols, compared with the last answer of the grounding stage.
    pub async fn evidence(&self) -> Result<Evidence, Error> {
        let accepted = self.accepted.all();
        let grounded = self.run.parties.stages.grounded();
        let mut effects = Vec::new();
        for id in accepted.keys() {
            let view = self.run.client.get(&format!("/protocols/{id}")).await?;
            if view["status"] == "complete" {
                let found = criteria(&view)?;
                let answered = grounded.get(id).map_or(&[][..], Vec::as_slice);
                effects.extend(effects_of(id, &found, answered));
            }
        }
        Ok(Evidence {
            service: NAME,
            accepted: keys(&accepted),
            effects,
            retried: self.run.parties.stages.retried_protocols(),
            ..Evidence::default()
        })
    }
}

fn criteria(view: &Value) -> Result<Vec<Criterion>, Error> {
    serde_json::from_value(view["criteria"].clone())
        .map_err(|e| Error::caused("can't read the criteria of a protocol", &e))
}

/// One effect for each time that the stage's answer is stored in the protocol.
fn effects_of(id: &str, found: &[Criterion], answered: &[Criterion]) -> Vec<Effect> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for criterion in found {
        *times.entry(&criterion.text).or_default() += 1;
    }
    let copies = times.values().copied().max().unwrap_or(1);
    let is_stored = |criterion: &Criterion| found.contains(criterion);
    let effect = Effect {
        item: id.to_owned(),
        correct: !answered.is_empty()
            && answered.iter().all(is_stored)
            && found.len() == answered.len() * copies,
    };
    vec![effect; copies]
}

/// The text of a protocol.
fn document(number: u64) -> String {
    let age = 18 + number % 12;
    format!(
        "Protocol GLU-{number}\n\n\
         Inclusion Criteria\n\
         1. Age between {age} and 75 years\n\
         2. Diagnosis of type 2 diabetes mellitus\n\
         3. HbA1c between 7.0 % and 10.5 %\n\n\
         Exclusion Criteria\n\
         1. Pregnancy or breastfeeding\n\
         2. Heart failure within {} months\n",
        1 + number % 9
    )
}

#[cfg(test)]
mod tests {
    use postrider_protocols::stage::extraction;

    use super::*;

    #[test]
    fn criteria_stored_twice_are_detected() {
        let answered = extraction::criteria(&document(3));
        assert!(answered.len() >= 5, "{answered:?}");
        let once = effects_of("p", &answered, &answered);
        assert!(once.len() == 1 && once[0].correct, "{once:?}");
        let doubled = [answered.clone(), answered.clone()].concat();
        assert_eq!(effects_of("p", &doubled, &answered).len(), 2);
        let fewer = effects_of("p", &answered[1..], &answered);
        assert!(!fewer[0].correct, "{fewer:?}");
    }
}
