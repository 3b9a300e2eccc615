//! The independent checker: compares what was accepted with what the outside parties recorded.
//!
//! It trusts none of the services' own records. An item is done when the party that it was meant for has it as
//! submitted: the broker's orders, the Case API's files, the files in the store, the wallet's entries, the reviewed
//! criteria. An accepted item that is neither done nor a dead letter is lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// The maximum number of items that a violation names.
const MAX_NAMED: usize = 3;

/// What is known of one service from outside.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The service.
    pub service: &'static str,
    /// Items whose acceptance was confirmed to the client.
    pub accepted: BTreeSet<String>,
    /// What the outside party recorded, repeats included.
    pub effects: Vec<Effect>,
    /// Items that needed more than one attempt.
    pub retried: usize,
    /// Items that the killed worker had leased and that were finished nevertheless.
    pub recovered: usize,
    /// Items that became dead letters.
    pub dead: usize,
    /// Items that are dead letters now.
    pub still_dead: usize,
    /// Other violations of what the service promises.
    pub violations: Vec<String>,
}

/// One record of the outside party.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The item.
    pub item: String,
    /// Is it what was submitted?
    pub correct: bool,
}

/// The figures of one service, or of all.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Accepted.
    pub accepted: usize,
    /// Done as submitted.
    pub done: usize,
    /// Needed more than one attempt.
    pub retried: usize,
    /// Were leased by the killed worker, and finished by others.
    pub recovered: usize,
    /// Became dead letters; all but `still_dead` of them succeeded after a redrive.
    pub dead: usize,
    /// Are dead letters now.
    pub still_dead: usize,
    /// Accepted, and neither done nor a dead letter.
    pub lost: usize,
    /// Done more than once.
    pub done_twice: usize,
}

/// The result of the demo.
#[derive(Debug, Serialize)]
pub struct Report {
    /// All services together.
    #[serde(flatten)]
    pub total: Tally,
    /// Each by its name.
    pub services: BTreeMap<&'static str, Tally>,
    /// Every violation, as a sentence; empty if every promise was kept.
    #[serde(rename = "broken")]
    pub violations: Vec<String>,
}

impl Report {
    /// Evaluates the evidence of all services.
    #[must_use]
    pub fn new(evidence: &[Evidence]) -> Self {
        let mut report = Self {
            total: Tally::default(),
            services: BTreeMap::new(),
            violations: Vec::new(),
        };
        for service in evidence {
            let (tally, violations) = evaluate(service);
            report.total.add(&tally);
            report.services.insert(service.service, tally);
            report.violations.extend(violations);
        }
        report
    }

    /// Was every promise kept?
    #[must_use]
    pub fn is_success(&self) -> bool {
        let Tally {
            accepted,
            done,
            lost,
            done_twice,
            ..
        } = self.total;
        self.violations.is_empty() && done == accepted && lost == 0 && done_twice == 0
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.done += other.done;
        self.retried += other.retried;
        self.recovered += other.recovered;
        self.dead += other.dead;
        self.still_dead += other.still_dead;
        self.lost += other.lost;
        self.done_twice += other.done_twice;
    }
}

fn evaluate(evidence: &Evidence) -> (Tally, Vec<String>) {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    let mut incorrect = BTreeSet::new();
    for effect in &evidence.effects {
        *times.entry(&effect.item).or_default() += 1;
        if !effect.correct {
            incorrect.insert(effect.item.as_str());
        }
    }
    let accepted: BTreeSet<&str> = evidence.accepted.iter().map(String::as_str).collect();
    let recorded: BTreeSet<&str> = times.keys().copied().collect();
    let done: BTreeSet<&str> = &(&accepted & &recorded) - &incorrect;
    let missing: BTreeSet<&str> = &accepted - &recorded;
    let unexpected: BTreeSet<&str> = &recorded - &accepted;
    let twice: BTreeSet<&str> = times
        .iter()
        .filter(|(_, times)| **times > 1)
        .map(|(item, _)| *item)
        .collect();
    let lost = (accepted.len() - done.len()).saturating_sub(evidence.still_dead);
    let tally = Tally {
        accepted: accepted.len(),
        done: done.len(),
        retried: evidence.retried,
        recovered: evidence.recovered,
        dead: evidence.dead,
        still_dead: evidence.still_dead,
        lost,
        done_twice: twice.len(),
    };
    let mut violations = evidence.violations.clone();
    let mut report = |what: &str, items: &BTreeSet<&str>| {
        if !items.is_empty() {
            let some: Vec<&str> = items.iter().copied().take(MAX_NAMED).collect();
            let more = if items.len() > MAX_NAMED { ", …" } else { "" };
            violations.push(format!("{} {what}: {}{more}", items.len(), some.join(", ")));
        }
    };
    if lost > 0 {
        report("accepted and never done", &missing);
    }
    report("done twice", &twice);
    report("not done as submitted", &incorrect);
    report("done without being accepted", &unexpected);
    if evidence.still_dead > 0 {
        violations.push(format!("{} still dead", evidence.still_dead));
    }
    let named = |violation: String| format!("{}: {violation}", evidence.service);
    (tally, violations.into_iter().map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(items: &[&str]) -> BTreeSet<String> {
        items.iter().map(|&item| item.to_owned()).collect()
    }

    fn correct(items: &[&str]) -> Vec<Effect> {
        let effect = |&item: &&str| Effect {
            item: item.to_owned(),
            correct: true,
        };
        items.iter().map(effect).collect()
    }

    fn evidence(accepted: &[&str], effects: Vec<Effect>) -> Evidence {
        Evidence {
            service: "orders",
            accepted: set(accepted),
            effects,
            ..Evidence::default()
        }
    }

    fn violations(evidence: Evidence) -> (Tally, String) {
        let report = Report::new(&[evidence]);
        assert!(!report.is_success(), "{report:?}");
        (report.total, report.violations.join("\n"))
    }

    #[test]
    fn everything_done_once_is_a_success() {
        let mut seen = evidence(&["a", "b"], correct(&["b", "a"]));
        (seen.retried, seen.recovered, seen.dead) = (2, 1, 1);
        let report = Report::new(&[seen, evidence(&["c"], correct(&["c"]))]);
        assert!(report.is_success(), "{report:?}");
        assert_eq!((report.total.accepted, report.total.done), (3, 3));
    }

    #[test]
    fn item_without_an_effect_is_lost() {
        let (total, why) = violations(evidence(&["a", "b"], correct(&["a"])));
        assert_eq!((total.lost, total.done), (1, 1));
        assert!(
            why.contains("orders: 1 accepted and never done: b"),
            "{why}"
        );
    }

    #[test]
    fn item_with_two_effects_was_done_twice() {
        let (total, why) = violations(evidence(&["a", "b"], correct(&["a", "b", "a"])));
        assert_eq!((total.done, total.done_twice, total.lost), (2, 1, 0));
        assert!(why.contains("orders: 1 done twice: a"), "{why}");
    }

    #[test]
    fn incorrect_effect_does_not_count() {
        let mut effects = correct(&["a", "b"]);
        effects[1].correct = false;
        let (total, why) = violations(evidence(&["a", "b"], effects));
        assert_eq!((total.done, total.lost), (1, 1));
        assert!(why.contains("1 not done as submitted: b"), "{why}");
    }

    #[test]
    fn effect_of_an_item_that_was_not_accepted_is_a_violation() {
        let (_, why) = violations(evidence(&["a"], correct(&["a", "z"])));
        assert!(why.contains("1 done without being accepted: z"), "{why}");
    }

    #[test]
    fn remaining_dead_letter_is_not_lost_but_a_violation() {
        let mut seen = evidence(&["a", "b"], correct(&["a"]));
        (seen.dead, seen.still_dead) = (1, 1);
        let (total, why) = violations(seen);
        assert_eq!((total.lost, total.still_dead), (0, 1));
        assert!(why.contains("1 still dead"), "{why}");
    }

    #[test]
    fn violation_reported_by_a_service_is_kept() {
        let mut seen = evidence(&["a"], correct(&["a"]));
        seen.violations = vec!["the balances differ".to_owned()];
        let (_, why) = violations(seen);
        assert!(why.contains("the balances differ"), "{why}");
    }

    #[test]
    fn violation_names_at_most_three_items() {
        let (_, why) = violations(evidence(&["a", "b", "c", "d"], Vec::new()));
        assert!(
            why.contains("4 accepted and never done: a, b, c, …"),
            "{why}"
        );
    }
}
