//! Renewal: a lease lasts while its holder works.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Lease, LostLease, Queue, seconds};
use crate::Result;

impl Queue {
    /// Extends these leases to `lease` from now. Returns the lost ones, whose work should stop.
    pub async fn renew<'a>(
        &self,
        connection: &mut PgConnection,
        leases: impl IntoIterator<Item = &'a Lease>,
        lease: Duration,
    ) -> Result<Vec<LostLease>> {
        let keys: Vec<(i64, i64)> = leases
            .into_iter()
            .map(|lease| (lease.id, lease.fence))
            .collect();
        let kept = self.renew_keys(connection, &keys, lease).await?;
        Ok(keys
            .iter()
            .filter(|(id, _)| !kept.contains(id))
            .map(|(id, _)| self.lost(*id))
            .collect())
    }

    /// Renews by id and fence; returns the ids that are still held.
    pub(crate) async fn renew_keys(
        &self,
        connection: &mut PgConnection,
        keys: &[(i64, i64)],
        lease: Duration,
    ) -> Result<std::collections::HashSet<i64>> {
        if keys.is_empty() {
            return Ok(std::collections::HashSet::new());
        }
        // Sorted everywhere, so that two statements over the same rows can't deadlock.
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        let (ids, fences): (Vec<i64>, Vec<i64>) = keys.into_iter().unzip();
        let kept: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(self.sql.renew.clone()))
            .bind(ids)
            .bind(fences)
            .bind(seconds(lease))
            .fetch_all(connection)
            .await?;
        postrider_crashpoint::point!("renew.after_commit")?;
        Ok(kept.into_iter().collect())
    }
}
