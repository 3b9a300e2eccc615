//! The worlds that are searched. Each has one danger at its centre and is small enough to be
//! searched whole; the long run adds bigger ones, where dangers meet.

use crate::guards::Guards;
use crate::protocol::{Goal, Protocol};
use crate::search::{Report, search};

/// Where the effect of an item happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// In the database that holds the item.
    InDatabase,
    /// At another service, which honours an idempotency key and can be asked.
    Call,
    /// At a consumer with an inbox, behind a broker that delivers at least once.
    Message,
}

/// The size of the world and what can go wrong in it.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<const N: usize> {
    pub work: [Work; N],
    pub max_attempts: u8,
    pub max_losses: u8,
    /// Items are there from the start, or a caller may enqueue them at any moment.
    pub enqueued: bool,
    /// Whether an operator may cancel items, and how often redrive one.
    pub cancels: bool,
    pub redrives: u8,
    /// Whether the items have a parent.
    pub family: bool,
    /// Anybody may crash or stall at any step; else only a poison item kills.
    pub chaos: bool,
    /// The item that kills every worker that handles it.
    pub poison: Option<usize>,
}

/// The worlds by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Workers compete for items, and anything may crash or stall.
    Leases,
    /// One item with a long life, three workers, and an operator who cancels and redrives.
    Operator,
    /// One item kills every worker that handles it, and nothing else fails.
    Poison,
    /// A service is called, with an operator in the way.
    Calls,
    /// A caller enqueues, a publisher sends, a consumer receives, an operator interferes.
    Messages,
    /// Items with a parent.
    Family,
    /// A parent whose items are cancelled and redriven.
    ReopenedFamily,
    ManyRetries,
    ManyRescues,
    ManyCallers,
    BusyOperator,
    CallWithMessage,
    RetriedFamily,
}

impl Place {
    /// Searched with every test run: at least a million worlds together.
    pub const SHORT: [Place; 7] = [
        Place::Leases,
        Place::Operator,
        Place::Poison,
        Place::Calls,
        Place::Messages,
        Place::Family,
        Place::ReopenedFamily,
    ];

    /// Searched as well in the long run: at least five million together.
    pub const LONG: [Place; 6] = [
        Place::ManyRetries,
        Place::ManyRescues,
        Place::ManyCallers,
        Place::BusyOperator,
        Place::CallWithMessage,
        Place::RetriedFamily,
    ];

    /// Searches this place until the goal is found or everything was seen.
    pub fn search(self, guards: Guards, goal: Goal) -> Report {
        match self {
            Place::Leases => run::<2, 2>(PLAIN, guards, goal),
            Place::Operator => run::<3, 1>(operated(one(Work::InDatabase)), guards, goal),
            Place::Poison => run::<2, 3>(POISON, guards, goal),
            Place::Calls => run::<2, 1>(operated(one(Work::Call)), guards, goal),
            Place::Messages => run::<2, 1>(operated(one(Work::Message)), guards, goal),
            Place::Family => run::<2, 2>(family(PLAIN), guards, goal),
            Place::ReopenedFamily => run::<1, 2>(family(operated(PLAIN)), guards, goal),
            Place::ManyRetries => run::<2, 2>(RETRIED, guards, goal),
            Place::ManyRescues => run::<2, 2>(RESCUED, guards, goal),
            Place::ManyCallers => run::<3, 1>(operated(one(Work::Call)), guards, goal),
            Place::BusyOperator => run::<2, 2>(operated(PLAIN), guards, goal),
            Place::CallWithMessage => run::<1, 2>(CALL_WITH_MESSAGE, guards, goal),
            Place::RetriedFamily => run::<2, 2>(family(RETRIED), guards, goal),
        }
    }
}

fn run<const W: usize, const N: usize>(
    scenario: Scenario<N>,
    guards: Guards,
    goal: Goal,
) -> Report {
    search(Protocol::<W, N> {
        scenario,
        guards,
        goal,
    })
}

/// Two items with the shortest lives: one attempt, and one lost worker is one too many. Longer lives
/// multiply the worlds, so each of the bigger places lengthens one thing.
const PLAIN: Scenario<2> = Scenario {
    work: [Work::InDatabase; 2],
    max_attempts: 1,
    max_losses: 1,
    enqueued: true,
    cancels: false,
    redrives: 0,
    family: false,
    chaos: true,
    poison: None,
};

const RETRIED: Scenario<2> = Scenario {
    max_attempts: 2,
    ..PLAIN
};

const RESCUED: Scenario<2> = Scenario {
    max_losses: 2,
    ..PLAIN
};

const CALL_WITH_MESSAGE: Scenario<2> = Scenario {
    work: [Work::Call, Work::Message],
    ..operated(PLAIN)
};

/// Two losses are fatal here, so that one unlucky neighbourhood is forgiven.
const POISON: Scenario<3> = Scenario {
    work: [Work::InDatabase; 3],
    max_attempts: 2,
    max_losses: 2,
    enqueued: false,
    cancels: false,
    redrives: 0,
    family: false,
    chaos: false,
    poison: Some(0),
};

/// One item with a long life.
const fn one(work: Work) -> Scenario<1> {
    Scenario {
        work: [work],
        max_attempts: 2,
        max_losses: 3,
        enqueued: false,
        cancels: false,
        redrives: 0,
        family: false,
        chaos: true,
        poison: None,
    }
}

const fn operated<const N: usize>(scenario: Scenario<N>) -> Scenario<N> {
    Scenario {
        cancels: true,
        redrives: 1,
        ..scenario
    }
}

const fn family<const N: usize>(scenario: Scenario<N>) -> Scenario<N> {
    Scenario {
        family: true,
        ..scenario
    }
}
