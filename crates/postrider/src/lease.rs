//! Leases: an item of a work table has one owner at a time.
//!
//! A [`Queue`] runs the lifecycle on one [`WorkTable`], with that table's own column and state names: claim, renew,
//! settle, rescue, and the operator's actions (redrive, cancel, park, archive). What it promises:
//!
//! - **One owner.** Every claim writes a new random fence. Settling requires it; a stale fence changes nothing.
//! - **One clock.** Due times and leases are compared with the database's clock only.
//! - **Nothing lost.** An item whose lease expired is found again ([`Queue::find_suspects`]) and claimed alone.
//! - **No waiting.** Every statement is batched, and none waits for a lock held by another open transaction.

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

/// The lease expired and the item went to another worker, or was cancelled. The late completion changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease on {table} item {id} is lost: it expired or was revoked, and nothing was changed"
)]
pub struct LostLease {
    /// The work table.
    pub table: &'static str,
    /// The item.
    pub id: i64,
}

/// Runs the lifecycle on one work table. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Queue {
    table: &'static WorkTable,
    sql: Arc<Statements>,
    call_timeout: Duration,
}

impl Queue {
    /// Creates a queue over this table. Its statements are built here, once, from the descriptor's constants.
    pub fn new(table: &'static WorkTable) -> Result<Self> {
        table.validate()?;
        Ok(Self {
            table,
            sql: Arc::new(Statements::new(table)),
            call_timeout: CALL_TIMEOUT,
        })
    }

    /// Sets the deadline of calls on a pool (default 30 s), after which the connection is closed.
    #[must_use]
    pub const fn call_timeout(mut self, call_timeout: Duration) -> Self {
        self.call_timeout = call_timeout;
        self
    }

    /// The table of this queue.
    #[must_use]
    pub fn table(&self) -> &'static WorkTable {
        self.table
    }

    /// Every statement by name, so that a test can prepare them all and check the claim's plan.
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

/// Seconds for `make_interval(secs => …)`, at most ten years.
fn seconds(duration: Duration) -> f64 {
    duration.min(crate::retry::MAX_DELAY).as_secs_f64()
}
