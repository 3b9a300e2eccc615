//! The independent checker: what was promised against what the outside world has seen.
//!
//! It knows nothing of the engine and trusts none of its records. An item counts as done when the party that it was for
//! has it as it was asked for: the broker's log, the Case API's, the files in the store, the wallet's books, the
//! reviewer's criteria. Whatever was accepted and is neither there nor a dead letter is lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// So many items are named for each kind of complaint.
const NAMED: usize = 3;

/// What is known of one service from outside.
#[derive(Debug, Default)]
pub struct Witness {
    /// Its name.
    pub service: &'static str,
    /// Items whose acceptance the client was told.
    pub accepted: BTreeSet<String>,
    /// What the outside party has, as often as it has it.
    pub effects: Vec<Effect>,
    /// Items that needed more than one attempt.
    pub retried: usize,
    /// Items that the killed worker held and that were finished all the same.
    pub recovered: usize,
    /// Items that were given up at some time.
    pub dead: usize,
    /// Items that are given up now.
    pub still_dead: usize,
    /// Other promises that were seen broken.
    pub complaints: Vec<String>,
}

/// One thing that the outside party has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Of which item.
    pub item: String,
    /// Is it what was asked for?
    pub right: bool,
}

/// The figures of one service, or of all.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Accepted.
    pub accepted: usize,
    /// Done as asked.
    pub done: usize,
    /// Needed more than one attempt.
    pub retried: usize,
    /// Were held by the killed worker, and finished by others.
    pub recovered: usize,
    /// Became dead letters; redriven since, but for those of `still_dead`.
    pub dead: usize,
    /// Are dead letters now.
    pub still_dead: usize,
    /// Accepted, and neither done nor a dead letter.
    pub lost: usize,
    /// Done more than once.
    pub done_twice: usize,
}

/// What came of it all.
#[derive(Debug, Serialize)]
pub struct Report {
    /// All services together.
    #[serde(flatten)]
    pub total: Tally,
    /// Each by its name.
    pub services: BTreeMap<&'static str, Tally>,
    /// Every promise that was broken, in words; empty when all is well.
    pub broken: Vec<String>,
}

impl Report {
    /// Judges what the witnesses have seen.
    pub fn of(witnesses: &[Witness]) -> Self {
        let mut report = Self {
            total: Tally::default(),
            services: BTreeMap::new(),
            broken: Vec::new(),
        };
        for witness in witnesses {
            let (tally, broken) = judge(witness);
            report.total.add(&tally);
            report.services.insert(witness.service, tally);
            report.broken.extend(broken);
        }
        report
    }

    /// Was every promise kept?
    pub fn is_right(&self) -> bool {
        let Tally {
            accepted,
            done,
            lost,
            done_twice,
            ..
        } = self.total;
        self.broken.is_empty() && done == accepted && lost == 0 && done_twice == 0
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

fn judge(witness: &Witness) -> (Tally, Vec<String>) {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = BTreeSet::new();
    for effect in &witness.effects {
        *times.entry(&effect.item).or_default() += 1;
        if !effect.right {
            wrong.insert(effect.item.as_str());
        }
    }
    let accepted: BTreeSet<&str> = witness.accepted.iter().map(String::as_str).collect();
    let seen: BTreeSet<&str> = times.keys().copied().collect();
    let done: BTreeSet<&str> = &(&accepted & &seen) - &wrong;
    let undone: BTreeSet<&str> = &accepted - &seen;
    let unasked: BTreeSet<&str> = &seen - &accepted;
    let twice: BTreeSet<&str> = times
        .iter()
        .filter(|(_, times)| **times > 1)
        .map(|(item, _)| *item)
        .collect();
    let lost = (accepted.len() - done.len()).saturating_sub(witness.still_dead);
    let tally = Tally {
        accepted: accepted.len(),
        done: done.len(),
        retried: witness.retried,
        recovered: witness.recovered,
        dead: witness.dead,
        still_dead: witness.still_dead,
        lost,
        done_twice: twice.len(),
    };
    let mut broken = witness.complaints.clone();
    let mut complain = |what: &str, items: &BTreeSet<&str>| {
        if !items.is_empty() {
            let some: Vec<&str> = items.iter().copied().take(NAMED).collect();
            let more = if items.len() > NAMED { ", …" } else { "" };
            broken.push(format!("{} {what}: {}{more}", items.len(), some.join(", ")));
        }
    };
    if lost > 0 {
        complain("accepted and never done", &undone);
    }
    complain("done twice", &twice);
    complain("not done as asked", &wrong);
    complain("done without having been accepted", &unasked);
    if witness.still_dead > 0 {
        broken.push(format!("{} still dead", witness.still_dead));
    }
    let named = |complaint: String| format!("{}: {complaint}", witness.service);
    (tally, broken.into_iter().map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(items: &[&str]) -> BTreeSet<String> {
        items.iter().map(|&item| item.to_owned()).collect()
    }

    fn right(items: &[&str]) -> Vec<Effect> {
        let effect = |&item: &&str| Effect {
            item: item.to_owned(),
            right: true,
        };
        items.iter().map(effect).collect()
    }

    fn witness(accepted: &[&str], effects: Vec<Effect>) -> Witness {
        Witness {
            service: "orders",
            accepted: set(accepted),
            effects,
            ..Witness::default()
        }
    }

    fn broken(witness: Witness) -> (Tally, String) {
        let report = Report::of(&[witness]);
        assert!(!report.is_right(), "{report:?}");
        (report.total, report.broken.join("\n"))
    }

    #[test]
    fn everything_done_once_is_right() {
        let mut seen = witness(&["a", "b"], right(&["b", "a"]));
        (seen.retried, seen.recovered, seen.dead) = (2, 1, 1);
        let report = Report::of(&[seen, witness(&["c"], right(&["c"]))]);
        assert!(report.is_right(), "{report:?}");
        assert_eq!((report.total.accepted, report.total.done), (3, 3));
    }

    #[test]
    fn an_item_without_an_effect_is_lost() {
        let (total, why) = broken(witness(&["a", "b"], right(&["a"])));
        assert_eq!((total.lost, total.done), (1, 1));
        assert!(
            why.contains("orders: 1 accepted and never done: b"),
            "{why}"
        );
    }

    #[test]
    fn an_item_with_two_effects_was_done_twice() {
        let (total, why) = broken(witness(&["a", "b"], right(&["a", "b", "a"])));
        assert_eq!((total.done, total.done_twice, total.lost), (2, 1, 0));
        assert!(why.contains("orders: 1 done twice: a"), "{why}");
    }

    #[test]
    fn an_effect_that_is_not_what_was_asked_for_does_not_count() {
        let mut effects = right(&["a", "b"]);
        effects[1].right = false;
        let (total, why) = broken(witness(&["a", "b"], effects));
        assert_eq!((total.done, total.lost), (1, 1));
        assert!(why.contains("1 not done as asked: b"), "{why}");
    }

    #[test]
    fn an_effect_that_nobody_asked_for_is_told() {
        let (_, why) = broken(witness(&["a"], right(&["a", "z"])));
        assert!(
            why.contains("1 done without having been accepted: z"),
            "{why}"
        );
    }

    #[test]
    fn a_dead_letter_is_not_lost_but_not_well_either() {
        let mut seen = witness(&["a", "b"], right(&["a"]));
        (seen.dead, seen.still_dead) = (1, 1);
        let (total, why) = broken(seen);
        assert_eq!((total.lost, total.still_dead), (0, 1));
        assert!(why.contains("1 still dead"), "{why}");
    }

    #[test]
    fn what_a_witness_complains_of_is_not_overlooked() {
        let mut seen = witness(&["a"], right(&["a"]));
        seen.complaints = vec!["the books do not agree".to_owned()];
        let (_, why) = broken(seen);
        assert!(why.contains("the books do not agree"), "{why}");
    }

    #[test]
    fn many_complaints_name_a_few_items() {
        let (_, why) = broken(witness(&["a", "b", "c", "d"], Vec::new()));
        assert!(
            why.contains("4 accepted and never done: a, b, c, …"),
            "{why}"
        );
    }
}
