//! Rescue: items whose worker was lost are found again and claimed one at a time.
//!
//! No index knows about leases (a claim would have to maintain it), so a rescuer reads the claim index in windows:
//! leased items are old ones, hence near its beginning, and by going on window after window it comes round to all.

use std::time::Duration;

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgPool};

use super::{Claim, Item, Lease, Queue, ScanCursor, seconds};
use crate::Result;
use crate::conn::{ConnGuard, with_timeout};

/// What one look at a window of the claim index found.
#[derive(Debug, Clone, Default)]
pub struct Suspects {
    /// Items with an expired lease, or with losses and no lease.
    pub ids: Vec<i64>,
    /// Where the next window begins; none when this one reached the end.
    pub next: Option<ScanCursor>,
}

/// An item that cost a worker before, claimed alone.
#[derive(Debug)]
pub enum Suspect {
    /// It gets another chance. Nothing else that is suspect should run beside it.
    Run(Lease, Item),
    /// It was lost too often: settle it as dead without running it.
    GiveUp(Lease, Item),
}

/// Suspects, entries read, and where the last of these sits.
type Window = (Vec<i64>, i64, Option<OffsetDateTime>, Option<i64>);

impl Queue {
    /// Reads up to `window` due items after `after` and names the suspects among them (of these kinds, if given).
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
        let found: Result<Window> = with_timeout(self.patience, async {
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

    /// Claims one of these, if any is still suspect. Over an expired lease this counts as one more loss.
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
        let row = with_timeout(self.patience, async {
            Ok(query.fetch_optional(&mut *held).await?)
        })
        .await;
        let row = held.finish(row)?;
        let Some(row) = row else { return Ok(None) };
        postrider_crashpoint::point!("rescue.after_commit")?;
        let (lease, item) = Item::from_row(&row, fence)?;
        Ok(Some(if item.losses >= i32::from(self.table.max_losses) {
            Suspect::GiveUp(lease, item)
        } else {
            Suspect::Run(lease, item)
        }))
    }
}
