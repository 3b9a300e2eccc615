//! Claiming: due items first, oldest first, skipping what others hold.

use std::time::Duration;

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use super::{Item, Lease, Queue, seconds, statements::Text};
use crate::conn::{ConnGuard, with_timeout};
use crate::error::is_conflict;
use crate::{Error, Result};

/// Maximum number of immediate retries when a claim loses a conflict.
const CONFLICT_RETRIES: u32 = 5;

/// A position in the claim index: everything before it was claimed, gone or held at that time.
///
/// Under an old snapshot, dead index entries can't be removed, and a claim from the start would walk over all of them.
/// But items can also appear *before* a cursor (a late commit, a retry that became due, a released item), so a claimer
/// returns to [`ScanCursor::START`] regularly, and always before it concludes that nothing is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanCursor {
    pub(super) due: Option<OffsetDateTime>,
    pub(super) id: i64,
}

impl ScanCursor {
    /// The start of the index.
    pub const START: Self = Self {
        due: None,
        id: i64::MIN,
    };

    /// The position of this item.
    #[must_use]
    pub const fn at(item: &Item) -> Self {
        Self {
            due: Some(item.due),
            id: item.id,
        }
    }
}

/// The kinds of items to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kinds {
    /// All kinds.
    Any,
    /// Only these kinds.
    Only(Vec<String>),
    /// All kinds but these.
    Except(Vec<String>),
}

/// A share of a table's items: claims of different shares never meet on a row. Ids are hashed, because of two topics
/// enqueued in turn, one would have all the odd ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Number of shares; a power of two.
    pub of: i32,
    pub number: i32,
}

impl Share {
    pub const ALL: Self = Self { of: 1, number: 0 };
}

/// What to claim, and for whom.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The claiming worker. Keep it short: it is written to every row.
    pub owner: String,
    /// Duration of the lease unless it is renewed.
    pub lease: Duration,
    /// Maximum number of items.
    pub limit: u32,
    /// Kinds to claim.
    pub kinds: Kinds,
    /// Where to start.
    pub from: ScanCursor,
}

impl Claim {
    /// A claim of up to `limit` items of any kind, from the start.
    #[must_use]
    pub fn new(owner: impl Into<String>, lease: Duration, limit: u32) -> Self {
        Self {
            owner: owner.into(),
            lease,
            limit,
            kinds: Kinds::Any,
            from: ScanCursor::START,
        }
    }

    /// Restricts the claim to these kinds.
    #[must_use]
    pub fn only(mut self, kinds: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.kinds = Kinds::Only(kinds.into_iter().map(Into::into).collect());
        self
    }

    pub(super) fn validate(&self) -> Result<()> {
        if self.owner.is_empty() || self.owner.len() > 100 {
            return Err(Error::invalid("owner", "must have 1 to 100 characters"));
        }
        if self.lease.is_zero() || self.lease > crate::retry::MAX_DELAY {
            return Err(Error::invalid(
                "lease",
                "must be greater than zero and less than ten years",
            ));
        }
        Ok(())
    }
}

/// A random token, unique to this claim.
pub(super) fn new_fence() -> i64 {
    rand::random()
}

impl Queue {
    /// Claims due items, oldest first. Items that lost a worker before are left to [`Queue::claim_suspect`].
    ///
    /// Takes a pool, not a transaction: a claim's commit doesn't wait for the disk, so nothing else may be in it.
    pub async fn claim(&self, pool: &PgPool, claim: &Claim) -> Result<Vec<(Lease, Item)>> {
        claim.validate()?;
        if claim.limit == 0 {
            return Ok(Vec::new());
        }
        let mut held = ConnGuard::acquire(pool).await?;
        let claimed = with_timeout(
            self.call_timeout,
            self.claim_on(&mut held, claim, Share::ALL),
        )
        .await;
        held.finish(claimed)
    }

    /// Claims on the caller's own connection, where nothing else is under way.
    pub(crate) async fn claim_on(
        &self,
        connection: &mut PgConnection,
        claim: &Claim,
        share: Share,
    ) -> Result<Vec<(Lease, Item)>> {
        let mut conflicts = 0;
        loop {
            match self.claim_once(connection, claim, share).await {
                // Two claimers met on the same update chain. Nothing was changed; the retry sees the result.
                Err(Error::Database(error))
                    if is_conflict(&error) && conflicts < CONFLICT_RETRIES =>
                {
                    conflicts += 1;
                }
                result => {
                    let claimed = result?;
                    postrider_crashpoint::point!("claim.after_commit")?;
                    return Ok(claimed);
                }
            }
        }
    }

    async fn claim_once(
        &self,
        connection: &mut PgConnection,
        claim: &Claim,
        share: Share,
    ) -> Result<Vec<(Lease, Item)>> {
        let fence = new_fence();
        let (text, kinds): (&Text, Option<&[String]>) = match &claim.kinds {
            Kinds::Any => (&self.sql.claim_any, None),
            Kinds::Only(kinds) if kinds.len() == 1 => (&self.sql.claim_one, Some(kinds)),
            Kinds::Only(kinds) => (&self.sql.claim_only, Some(kinds)),
            Kinds::Except(kinds) => (&self.sql.claim_except, Some(kinds)),
        };
        let mut query = sqlx::query(AssertSqlSafe(text.clone()))
            .bind(seconds(claim.lease))
            .bind(fence)
            .bind(&claim.owner)
            .bind(claim.from.due)
            .bind(claim.from.id)
            .bind(i64::from(claim.limit))
            .bind(share.of)
            .bind(share.number);
        if let Some(kinds) = kinds {
            query = query.bind(kinds);
        }
        let rows = query.fetch_all(connection).await?;
        let mut claimed = rows
            .iter()
            .map(|row| Item::from_row(row, fence))
            .collect::<Result<Vec<_>, _>>()?;
        // `returning` guarantees no order.
        claimed.sort_by_key(|(_, item)| (item.due, item.id));
        Ok(claimed)
    }
}
