//! Leases: how an item of a work table gets one owner at a time, and how it is let go.
//!
//! A [`Queue`] speaks the lifecycle to one [`WorkTable`] in that table's own words: claim, renew, settle, rescue, and
//! the operator's deeds (redrive, cancel, park, archive). The promises:
//!
//! - One owner: every claim writes a new random fence; whoever settles must bring it, and a stale one changes nothing.
//! - One clock: due times and leases are judged by the database alone.
//! - Nothing lost: an item whose lease ran out is found again ([`Queue::find_suspects`]) and claimed alone.
//! - Every statement is batched, and none waits for a lock that an open transaction of somebody else holds.

mod claim;
mod ctid;
mod item;
mod operate;
mod renew;
mod rescue;
mod settle;
mod statements;
mod table;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use claim::Share;
pub use claim::{Claim, Kinds, ScanCursor};
pub use item::{Item, Lease, UnreadablePayload};
pub use operate::{Operator, Redriven};
pub use rescue::{Suspect, Suspects};
pub use settle::{Outcome, Settled, Settlement};
use statements::Statements;
pub use table::{Columns, Finish, OrderingKeys, States, WorkTable};

use crate::Result;
use crate::conn::CALL_TIMEOUT;

/// The lease ran out and the item went to somebody else, or was cancelled: the late completion changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease on {table} item {id} is lost: it ran out or was taken back, so nothing was changed"
)]
pub struct LostLease {
    /// The work table.
    pub table: &'static str,
    /// The item.
    pub id: i64,
}

/// The lifecycle, spoken to one work table. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Queue {
    table: &'static WorkTable,
    sql: Arc<Statements>,
    patience: Duration,
}

impl Queue {
    /// A queue over this table; its statements are made here, once, from the descriptor's constants.
    pub fn new(table: &'static WorkTable) -> Result<Self> {
        table.validate()?;
        Ok(Self {
            table,
            sql: Arc::new(Statements::of(table)),
            patience: CALL_TIMEOUT,
        })
    }

    /// How long a call on a pool waits for the database's answer (default 30 s) before it gives the connection up for
    /// lost.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The table behind this queue.
    #[must_use]
    pub fn table(&self) -> &'static WorkTable {
        self.table
    }

    /// Every statement by name: a test prepares them all and looks at the claim's plan.
    #[must_use]
    pub fn statements(&self) -> Vec<(&'static str, String)> {
        self.sql.all()
    }

    fn lost(&self, id: i64) -> LostLease {
        LostLease {
            table: self.table.name,
            id,
        }
    }
}

/// Turns delays into what `make_interval(secs => …)` takes; ten years is for ever here.
fn seconds(duration: Duration) -> f64 {
    duration.min(crate::retry::MAX_DELAY).as_secs_f64()
}
