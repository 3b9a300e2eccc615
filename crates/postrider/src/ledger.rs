//! The idempotency ledger: one key, one request, one outcome.
//!
//! The promise: of all requests with one key, exactly one is accepted, in the caller's own transaction. The same
//! request again is told the recorded state or result; another request under the same key is told so. Of two first
//! requests at once, one wins and the other waits for its commit, but no longer than the ledger's patience.
//! The ledger never deletes: it outlives the rows that it describes, or a reused key would do the work again.

mod coalesce;
mod key;
mod many;
mod record;

use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;

pub use coalesce::{Coalesce, Coalesced};
pub use key::{InvalidKey, Key};
pub use record::{Outcome, Recorded, State};

use crate::{Error, digest::Digest, lock_wait};

/// Takes the key, unless it is taken; waits for a transaction that is just about to take it.
///
/// `lock_timeout` bounds that wait. It is set inside the statement to spare a round trip.
const ACCEPT: &str = "
with patience as materialized (select set_config('lock_timeout', $4, true)),
     first as (insert into postrider.ledger (scope, key, digest)
               select $1, $2, $3 from patience
               on conflict (scope, key) do nothing
               returning 1)
select count(*) from first";

const RECORDED: &str = "
select digest, state, result, created_at, finished_at from postrider.ledger where scope = $1 and key = $2";

/// Terminal is terminal: only an accepted entry is finished.
const FINISH: &str = "
update postrider.ledger set state = $3, result = $4, finished_at = clock_timestamp()
where scope = $1 and key = $2 and state = 'accepted'";

const REOPEN: &str = "
update postrider.ledger set state = 'accepted', result = null, finished_at = null
where scope = $1 and key = $2 and state = 'failed'";

/// What became of a request that asked for a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Acceptance {
    /// The first of its key: the caller does the work, in this transaction.
    Accepted,
    /// The same request was there before; this is what is known of it.
    Replay(Recorded),
    /// Another request was there before under the same key: a conflict (409).
    Mismatch,
}

/// Why the ledger could not answer.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another request with this key is being accepted and takes longer than we wait: try again later (503).
    /// The transaction is aborted and must be rolled back.
    #[error("another request with the same key is still being accepted; try again in {} s", retry_after.as_secs().max(1))]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// Nothing was ever accepted under this key.
    #[error("no request with the key {0} was accepted")]
    Unknown(Key),
    /// The entry is in another state than the operation needs; it was not changed.
    #[error("the request with the key {key} is {state} already and stays so")]
    NotNow {
        /// The entry in question.
        key: Key,
        /// The state that it has.
        state: State,
    },
    /// The database failed, or holds something that can't be read.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        if lock_wait::ran_out(&error) {
            return Self::Busy {
                retry_after: Duration::from_secs(1),
            };
        }
        Self::Engine(Error::Database(error))
    }
}

/// The ledger, with how long it waits for a competing request.
#[derive(Debug, Clone, Copy)]
pub struct Ledger {
    patience: Duration,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(Duration::from_secs(2))
    }
}

impl Ledger {
    /// A ledger that waits this long for a competing request to commit.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { patience }
    }

    /// Takes the key for this request, or tells what is recorded under it.
    ///
    /// Part of the caller's transaction: nothing is taken unless it commits. The transaction keeps the ledger's
    /// patience as its `lock_timeout` to its end.
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
            .bind(lock_wait::setting(self.patience))
            .fetch_one(&mut *tx)
            .await?;
        if first > 0 {
            postrider_crashpoint::point!("ledger.accepted").map_err(Error::from)?;
            return Ok(Acceptance::Accepted);
        }
        let recorded = self.get(tx, key).await?;
        // Only a row deleted by hand in this very moment is neither insertable nor there.
        let recorded = recorded.ok_or(LedgerError::Busy {
            retry_after: self.patience,
        })?;
        Ok(recorded.answer(digest))
    }

    /// What is recorded under the key, if anything.
    pub async fn get(
        &self,
        connection: &mut PgConnection,
        key: &Key,
    ) -> Result<Option<Recorded>, LedgerError> {
        let row: Option<record::Row> = sqlx::query_as(RECORDED)
            .bind(key.scope())
            .bind(key.key())
            .fetch_optional(connection)
            .await?;
        row.map(Recorded::try_from)
            .transpose()
            .map_err(LedgerError::Engine)
    }

    /// Writes the final outcome and its result, once. Belongs into the transaction that settles the work.
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
        Err(LedgerError::NotNow {
            key: key.clone(),
            state: recorded.state,
        })
    }
}
