//! Runs the checker over one protocol and says what it found.

use std::fmt;

use stateright::{Checker, Model};

use crate::invariants::Invariant;
use crate::protocol::{Action, Goal, Protocol};

/// What a search found.
pub struct Report {
    /// How many different worlds were seen.
    pub worlds: usize,
    /// The way to the goal, if there is one.
    pub found: Option<Found>,
}

/// The steps to a world, and the invariants that it breaks.
pub struct Found {
    pub steps: Vec<Action>,
    pub broken: Vec<Invariant>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.steps)?;
        match self.broken.is_empty() {
            true => Ok(()),
            false => write!(f, " breaks {:?}", self.broken),
        }
    }
}

/// Searches until the goal is found or everything was seen. A search that is meant to find something
/// uses one thread, so that the way is a shortest one and the same each time.
pub fn search<const W: usize, const N: usize>(protocol: Protocol<W, N>) -> Report {
    let threads = match protocol.goal {
        Goal::AnyBreach => 2,
        Goal::Breach(_) | Goal::Sight(_) => 1,
    };
    let checker = protocol.checker().threads(threads).spawn_bfs().join();
    let found = checker.discoveries().into_values().next();
    Report {
        worlds: checker.unique_state_count(),
        found: found.map(|path| Found {
            broken: protocol.broken(path.last_state()),
            steps: path.into_actions(),
        }),
    }
}
