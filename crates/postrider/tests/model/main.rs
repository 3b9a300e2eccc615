//! A model of the engine's protocol, searched whole: leases and fences, outbox and inbox, effects
//! inside and outside the database, parents and their finalizer, under every order of crashes,
//! stalls, lost answers and lost commits.
//!
//! Gauge order: `state` (what there is), `lease`, `settle`, `effect` and `parent` (what happens to
//! it), `protocol` (who may do what when), `invariants` and `recovery` (what must be true),
//! `guards` (what makes it true), `scenarios` and `witnesses` (which worlds are searched, and what is
//! to be seen there).
//!
//! Time is abstract: a lease may run out and an item may come due at any moment. A crash of the
//! server forgets every commit after the last flush: a claim does not flush, a settle does.
//!
//! `POSTRIDER_MODEL=long` searches the bigger worlds as well; `--nocapture` shows the counts and the
//! way in which each removed guard is missed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod effect;
mod guards;
mod invariants;
mod lease;
mod pack;
mod parent;
mod protocol;
mod recovery;
mod scenarios;
mod search;
mod settle;
mod state;
mod witnesses;

use guards::{Guards, REMOVALS};
use protocol::Goal;
use scenarios::Place;
use witnesses::Witness;

#[test]
fn the_protocol_keeps_every_promise() {
    let long = std::env::var("POSTRIDER_MODEL").is_ok_and(|amount| amount == "long");
    let (more, at_least) = if long {
        (&Place::LONG[..], 5_000_000)
    } else {
        (&[][..], 1_000_000)
    };
    let mut worlds = 0;
    for place in Place::SHORT.iter().chain(more) {
        let report = place.search(Guards::ALL, Goal::AnyBreach);
        if let Some(breach) = report.found {
            panic!("{place:?}: {breach}");
        }
        println!("{place:?}: {} worlds, no breach", report.worlds);
        worlds += report.worlds;
    }
    println!("{worlds} worlds in all");
    assert!(worlds >= at_least, "only {worlds} worlds were searched");
}

#[test]
fn each_guard_removed_is_caught() {
    for removal in REMOVALS {
        let mut guards = Guards::ALL;
        (removal.remove)(&mut guards);
        let goal = Goal::Breach(removal.breaks);
        let Some(breach) = removal.place.search(guards, goal).found else {
            panic!("{:?} holds without {}", removal.breaks, removal.guard);
        };
        println!("without {}: {breach}", removal.guard);
    }
}

#[test]
fn the_search_goes_where_the_danger_is() {
    for (witness, place) in [
        (Witness::DoneAfterLoss, Place::Operator),
        (Witness::MarkedDead, Place::Poison),
        (Witness::TwoHolders, Place::Leases),
        (Witness::ForgottenClaim, Place::Leases),
        (Witness::RedrivenAndDone, Place::Operator),
        (Witness::UnheardEffect, Place::Calls),
        (Witness::Duplicate, Place::Messages),
        (Witness::ParentBehind, Place::Family),
        (Witness::ClosedTooSoon, Place::ReopenedFamily),
    ] {
        let Some(sight) = place.search(Guards::ALL, Goal::Sight(witness)).found else {
            panic!("{place:?} never shows {witness:?}");
        };
        println!("{witness:?}: {sight}");
    }
}

#[test]
fn every_guard_is_removed_once() {
    let fields = format!("{:?}", Guards::ALL);
    for removal in REMOVALS {
        let mut guards = Guards::ALL;
        (removal.remove)(&mut guards);
        let (on, off) = (
            format!("{}: true", removal.guard),
            format!("{}: false", removal.guard),
        );
        assert_eq!(format!("{guards:?}"), fields.replace(&on, &off));
    }
    assert_eq!(fields.matches(": true").count(), REMOVALS.len());
}
