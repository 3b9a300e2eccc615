//! Rescue: items of lost workers are found again and claimed one at a time.
//!
//! No index covers leases, because a claim would have to maintain it. So a rescuer reads the claim index in windows:
//! leased items are old, hence near its start, and window after window it reaches all of them.

use std::time::Duration;

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgPool};

use super::{Claim, Item, Lease, Queue, ScanCursor, seconds};
use crate::Result;
use crate::conn::{ConnGuard, with_timeout};

/// What a scan of one window found.
#[derive(Debug, Clone, Default)]
pub struct Suspects {
    /// Items with an expired lease, or with losses and no lease.
    pub ids: Vec<i64>,
    /// Where the next window starts; None if this one reached the end.
    pub next: Option<ScanCursor>,
}

/// An item that lost a worker before, claimed alone.
#[derive(Debug)]
pub enum Suspect {
    /// Run it once more. No other suspect should run next to it.
    Run(Lease, Item),
    /// It lost too many workers: settle it as dead without running it.
    Exhausted(Lease, Item),
}

/// Suspects, number of entries read, and position of the last entry.
type Window = (Vec<i64>, i64, Option<OffsetDateTime>, Option<i64>);

impl Queue {
    /// Reads up to `window` due items after `after` and returns the suspects among them, of these kinds if given.
    pub async fn find_suspects(
        &self,
        pool: &PgPool,
        after: ScanCursor,
        window: u32,
        kinds: Option<&[String]>,
    ) -> Result<Suspects> {
        let text = match kinds {
            Some([_]) => &self.sql.find_suspects_of_one,
            _ => &self.sql.find_suspects,
        };
        let mut held = ConnGuard::acquire(pool).await?;
        let found: Result<Window> = with_timeout(self.call_timeout, async {
            let query = sqlx::query_as(AssertSqlSafe(text.clone()))
                .bind(after.due)
                .bind(after.id)
                .bind(i64::from(window))
                .bind(kinds);
            Ok(query.fetch_one(&mut *held).await?)
        })
        .await;
        let (ids, seen, due, id) = held.finish(found)?;
        let next = match id {
            Some(id) if seen >= i64::from(window) => Some(ScanCursor { due, id }),
            _ => None,
        };
        Ok(Suspects { ids, next })
    }

    /// Claims one of these items if it is still suspect. Taking over an expired lease counts as one more loss.
    pub async fn claim_suspect(
        &self,
        pool: &PgPool,
        owner: &str,
        lease: Duration,
        ids: &[i64],
    ) -> Result<Option<Suspect>> {
        Claim::new(owner, lease, 1).validate()?;
        let fence = super::claim::new_fence();
        let query = sqlx::query(AssertSqlSafe(self.sql.claim_suspect.clone()))
            .bind(seconds(lease))
            .bind(fence)
            .bind(owner)
            .bind(ids);
        let mut held = ConnGuard::acquire(pool).await?;
        let row = with_timeout(self.call_timeout, async {
            Ok(query.fetch_optional(&mut *held).await?)
        })
        .await;
        let row = held.finish(row)?;
        let Some(row) = row else { return Ok(None) };
        postrider_crashpoint::point!("rescue.after_commit")?;
        let (lease, item) = Item::from_row(&row, fence)?;
        Ok(Some(if item.losses >= i32::from(self.table.max_losses) {
            Suspect::Exhausted(lease, item)
        } else {
            Suspect::Run(lease, item)
        }))
    }
}
