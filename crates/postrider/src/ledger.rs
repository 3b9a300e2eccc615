//! The idempotency ledger: one key, one request, one outcome.
//!
//! Of all requests with one key, exactly one is accepted, in the caller's own transaction. A repetition of the same
//! request gets the recorded state or result; a different request under the same key is a mismatch. Of two first
//! requests at once, one wins and the other waits for its commit, up to the ledger's lock timeout. The ledger never
//! deletes: it outlives the rows that it describes, because a reused key would repeat the work.
//!
//! ```no_run
//! use postrider::digest::Digest;
//! use postrider::ledger::{Acceptance, Key, Ledger};
//!
//! # async fn example(pool: &sqlx::PgPool, body: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let key = Key::new("billing", "order-7")?;
//! let mut tx = pool.begin().await?;
//! match Ledger::default().accept(&mut tx, &key, &Digest::of_bytes(body)).await? {
//!     Acceptance::Accepted => { /* do the work in this transaction */ }
//!     Acceptance::Replay(entry) => println!("already {}", entry.state),
//!     Acceptance::Mismatch => println!("409 Conflict"),
//! }
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

mod coalesce;
mod key;
mod many;
mod record;

use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;

pub use coalesce::{Coalesce, Coalesced};
pub use key::{InvalidKey, Key};
pub use record::{Entry, Outcome, State};

use crate::{Error, digest::Digest, lock_wait};

/// Inserts the key unless it exists; waits for a transaction that is about to insert it.
///
/// `lock_timeout` bounds that wait. It is set inside the statement to save a round trip.
const ACCEPT: &str = "
with bound as materialized (select set_config('lock_timeout', $4, true)),
     first as (insert into postrider.ledger (scope, key, digest)
               select $1, $2, $3 from bound
               on conflict (scope, key) do nothing
               returning 1)
select count(*) from first";

const RECORDED: &str = "
select digest, state, result, created_at, finished_at from postrider.ledger where scope = $1 and key = $2";

/// Terminal states are final: only an accepted entry can be finished.
const FINISH: &str = "
update postrider.ledger set state = $3, result = $4, finished_at = clock_timestamp()
where scope = $1 and key = $2 and state = 'accepted'";

const REOPEN: &str = "
update postrider.ledger set state = 'accepted', result = null, finished_at = null
where scope = $1 and key = $2 and state = 'failed'";

/// The ledger's answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Acceptance {
    /// The first request with this key: the caller does the work, in this transaction.
    Accepted,
    /// The same request was accepted before; this is its entry.
    Replay(Entry),
    /// A different request was accepted before under this key: a conflict (409).
    Mismatch,
}

/// Errors of the ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another request with this key is being accepted and takes longer than we wait: retry later (503). The
    /// transaction is aborted and must be rolled back.
    #[error("another request with the same key is still being accepted; try again in {} s", retry_after.as_secs().max(1))]
    Busy {
        /// When to retry.
        retry_after: Duration,
    },
    /// Nothing was ever accepted under this key.
    #[error("no request with the key {0} was accepted")]
    Unknown(Key),
    /// The entry's state doesn't allow the operation; it wasn't changed.
    #[error("the request with the key {key} is {state} already and stays so")]
    WrongState {
        /// The entry's key.
        key: Key,
        /// The entry's state.
        state: State,
    },
    /// The database failed, or contains something that can't be read.
    #[error(transparent)]
    Other(#[from] Error),
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        if lock_wait::ran_out(&error) {
            return Self::Busy {
                retry_after: Duration::from_secs(1),
            };
        }
        Self::Other(Error::Database(error))
    }
}

/// The ledger, with a limit on the wait for a competing request.
#[derive(Debug, Clone, Copy)]
pub struct Ledger {
    lock_timeout: Duration,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(Duration::from_secs(2))
    }
}

impl Ledger {
    /// Creates a ledger that waits this long for a competing request to commit.
    #[must_use]
    pub const fn new(lock_timeout: Duration) -> Self {
        Self { lock_timeout }
    }

    /// Accepts this request under the key, or returns what is recorded.
    ///
    /// Part of the caller's transaction: nothing is accepted unless it commits. The transaction keeps the ledger's
    /// `lock_timeout` until its end.
    pub async fn accept(
        &self,
        tx: &mut PgConnection,
        key: &Key,
        digest: &Digest,
    ) -> Result<Acceptance, LedgerError> {
        let first: i64 = sqlx::query_scalar(ACCEPT)
            .bind(key.scope())
            .bind(key.key())
            .bind(&digest.as_bytes()[..])
            .bind(lock_wait::setting(self.lock_timeout))
            .fetch_one(&mut *tx)
            .await?;
        if first > 0 {
            postrider_crashpoint::point!("ledger.accepted").map_err(Error::from)?;
            return Ok(Acceptance::Accepted);
        }
        let recorded = self.get(tx, key).await?;
        // Only a row deleted by hand at this very moment is neither insertable nor present.
        let recorded = recorded.ok_or(LedgerError::Busy {
            retry_after: self.lock_timeout,
        })?;
        Ok(recorded.answer(digest))
    }

    /// Returns the entry of this key, if any.
    pub async fn get(
        &self,
        connection: &mut PgConnection,
        key: &Key,
    ) -> Result<Option<Entry>, LedgerError> {
        let row: Option<record::Row> = sqlx::query_as(RECORDED)
            .bind(key.scope())
            .bind(key.key())
            .fetch_optional(connection)
            .await?;
        row.map(Entry::try_from)
            .transpose()
            .map_err(LedgerError::Other)
    }

    /// Records the final outcome and its result, once. Call it in the transaction that settles the work.
    pub async fn finish(
        &self,
        tx: &mut PgConnection,
        key: &Key,
        outcome: Outcome,
        result: Option<Value>,
    ) -> Result<(), LedgerError> {
        let done = sqlx::query(FINISH)
            .bind(key.scope())
            .bind(key.key())
            .bind(State::from(outcome).as_str())
            .bind(result.map(record::storable))
            .execute(&mut *tx)
            .await?;
        postrider_crashpoint::point!("ledger.finished").map_err(Error::from)?;
        self.require_change(tx, key, done.rows_affected()).await
    }

    /// Makes a failed entry accepted again, for a redrive that the caller records in the audit log.
    pub async fn reopen(&self, tx: &mut PgConnection, key: &Key) -> Result<(), LedgerError> {
        let done = sqlx::query(REOPEN)
            .bind(key.scope())
            .bind(key.key())
            .execute(&mut *tx)
            .await?;
        self.require_change(tx, key, done.rows_affected()).await
    }

    async fn require_change(
        &self,
        tx: &mut PgConnection,
        key: &Key,
        changed: u64,
    ) -> Result<(), LedgerError> {
        if changed > 0 {
            return Ok(());
        }
        let recorded = self
            .get(tx, key)
            .await?
            .ok_or_else(|| LedgerError::Unknown(key.clone()))?;
        Err(LedgerError::WrongState {
            key: key.clone(),
            state: recorded.state,
        })
    }
}
