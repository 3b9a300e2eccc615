//! Protocols: documents through two stages to a reviewer, who approves what was found; one is under embargo at first.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use postrider_protocols::model::Criterion;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Accepted, Glance, Run, names};
use crate::{
    cli::demo::{
        checker::{Effect, Witness},
        parties::stages::EMBARGOED,
    },
    exit::{Exit, Failure},
};

const NAME: &str = "protocols";
const A_SECOND: u64 = 1;

/// How often the reviewer looks.
const LOOK: Duration = Duration::from_millis(500);

/// The act.
pub struct Protocols {
    run: Arc<Run>,
    planned: u64,
    accepted: Accepted<()>,
    approved: Mutex<BTreeSet<String>>,
    /// The protocol under embargo.
    doomed: OnceLock<String>,
}

impl Protocols {
    pub fn new(run: Arc<Run>) -> Self {
        Self {
            planned: run.planned(A_SECOND),
            run,
            accepted: Accepted::new(),
            approved: Mutex::default(),
            doomed: OnceLock::new(),
        }
    }

    pub async fn ask(&self) -> Result<(), Failure> {
        let mut pace = self.run.pace(self.planned);
        for number in 0..self.planned {
            pace.tick().await;
            let doomed = number == self.planned / 4;
            let word = if doomed { EMBARGOED } else { "Trial" };
            let title = format!("{word}-{number}-of-{}", self.run.name);
            let request = self
                .run
                .door
                .request(Method::POST, &format!("/protocols?title={title}"))
                .header("content-type", "text/plain")
                .body(document(number));
            let calm = self.run.calm.read().await;
            let answer = self.run.door.once(request).await?;
            drop(calm);
            let id = answer["id"].as_str().unwrap_or_default();
            if doomed {
                // One protocol only is doomed.
                let _ = self.doomed.set(id.to_owned());
            }
            self.accepted.note(id, ());
        }
        Ok(())
    }

    /// The reviewer: approves whatever waits, for as long as this is polled.
    pub async fn review(&self) -> Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            // Whatever fails is looked at again.
            let _ = self.look().await;
        }
    }

    async fn look(&self) -> Result<(), Failure> {
        let path = "/protocols?status=pending_review&limit=500";
        let waiting = self.run.door.get(path).await?;
        let accepted = self.accepted.all();
        for protocol in waiting["items"].as_array().into_iter().flatten() {
            let id = protocol["id"].as_str().unwrap_or_default();
            if accepted.contains_key(id) {
                let path = format!("/protocols/{id}/review");
                let request = self.run.door.request(Method::POST, &path);
                let decision = json!({ "decision": "approve" });
                self.run.door.once(request.json(&decision)).await?;
                self.approved().insert(id.to_owned());
            }
        }
        Ok(())
    }

    fn approved(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The embargo is over: the protocol begins anew.
    pub async fn redrive(&self) -> Result<(), Failure> {
        let Some(id) = self.doomed.get() else {
            return Err(Failure::new(Exit::Failed, "no protocol has failed"));
        };
        let path = format!("/protocols/{id}/retry");
        self.run.door.post(&path, &json!({})).await?;
        Ok(())
    }

    pub fn glance(&self) -> Glance {
        Glance {
            name: NAME,
            planned: self.planned,
            accepted: self.accepted.len(),
            done: self.approved().len() as u64,
            retried: self.run.parties.stages.asked_again() as u64,
            dead: 0,
            blocked: 1,
        }
    }

    /// What the reviewer reads, beside what the stage has answered.
    pub async fn witness(&self) -> Result<Witness, Failure> {
        let accepted = self.accepted.all();
        let answers = self.run.parties.stages.answers();
        let mut effects = Vec::new();
        for id in accepted.keys() {
            let view = self.run.door.get(&format!("/protocols/{id}")).await?;
            if view["status"] == "complete" {
                let found = criteria(&view)?;
                let answered = answers.get(id).map_or(&[][..], Vec::as_slice);
                effects.extend(judge(id, &found, answered));
            }
        }
        Ok(Witness {
            service: NAME,
            accepted: names(&accepted),
            effects,
            retried: self.run.parties.stages.asked_again(),
            ..Witness::default()
        })
    }
}

fn criteria(view: &Value) -> Result<Vec<Criterion>, Failure> {
    serde_json::from_value(view["criteria"].clone())
        .map_err(|e| Failure::caused(Exit::Failed, "the criteria of a protocol", &e))
}

/// One effect for each time that the stage's answer stands in the protocol.
fn judge(id: &str, found: &[Criterion], answered: &[Criterion]) -> Vec<Effect> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for criterion in found {
        *times.entry(&criterion.text).or_default() += 1;
    }
    let most = times.values().copied().max().unwrap_or(1);
    let all_there = |criterion: &Criterion| found.contains(criterion);
    let effect = Effect {
        item: id.to_owned(),
        right: !answered.is_empty()
            && answered.iter().all(all_there)
            && found.len() == answered.len() * most,
    };
    vec![effect; most]
}

/// A protocol as sponsors write them.
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
    fn criteria_that_were_stored_twice_are_noticed() {
        let answered = extraction::criteria(&document(3));
        assert!(answered.len() >= 5, "{answered:?}");
        let once = judge("p", &answered, &answered);
        assert!(once.len() == 1 && once[0].right, "{once:?}");
        let doubled = [answered.clone(), answered.clone()].concat();
        assert_eq!(judge("p", &doubled, &answered).len(), 2);
        let fewer = judge("p", &answered[1..], &answered);
        assert!(!fewer[0].right, "{fewer:?}");
    }
}
