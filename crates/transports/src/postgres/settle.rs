//! Settling: in its own or in the caller's transaction, fenced in either case.

use std::time::Duration;

use postrider::lease::{Outcome, Settled, Settlement};
use postrider::transport::{Fate, Receipt, TransportError};
use postrider::{Verdict, internal::decide};
use sqlx::PgConnection;
use tokio::time::Instant;

use super::consumer::Shared;
use super::transport_error;

const FIRST_PAUSE: Duration = Duration::from_millis(20);

impl Shared {
    pub async fn settle(
        &self,
        batch: Vec<(Receipt, Verdict)>,
    ) -> Result<Vec<Fate>, TransportError> {
        // Per receipt: the id of its lease, and whether settling makes it a dead letter.
        let mut leases: Vec<Option<(i64, bool)>> = Vec::with_capacity(batch.len());
        let mut settlements = Vec::with_capacity(batch.len());
        for (receipt, verdict) in batch {
            let Some(lease) = self.remove(receipt.redeem()).await else {
                leases.push(None);
                continue;
            };
            let policy = &self.subscription.policy;
            let outcome = decide(policy, verdict, lease.attempts(), rand::random());
            leases.push(Some((lease.id(), matches!(outcome, Outcome::Dead { .. }))));
            settlements.push(Settlement::new(lease, outcome));
        }
        if settlements.is_empty() {
            return Ok(vec![Fate::Lost; leases.len()]);
        }
        let settled = self.persist(&settlements).await?;
        let lost = |id: i64| settled.lost.iter().any(|lost| lost.id == id);
        Ok(leases
            .into_iter()
            .map(|lease| match lease {
                None => Fate::Lost,
                Some((id, _)) if lost(id) => Fate::Lost,
                Some((_, true)) => Fate::Dead,
                Some((_, false)) => Fate::Settled,
            })
            .collect())
    }

    pub async fn settle_in(
        &self,
        transaction: &mut PgConnection,
        receipts: Vec<Receipt>,
    ) -> Result<(), TransportError> {
        let mut settlements = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let lease = self.remove(receipt.redeem()).await;
            let lease = lease.ok_or(TransportError::Lost)?;
            settlements.push(Settlement::new(lease, Outcome::Done));
        }
        let settled = self
            .transport
            .queue
            .settle_many_in(transaction, &self.owner, &settlements)
            .await
            .map_err(transport_error)?;
        self.promote_later(settled.busy_keys);
        if settled.lost.is_empty() {
            Ok(())
        } else {
            Err(TransportError::Lost)
        }
    }

    /// Writes these outcomes. Retries while the database is unavailable, for up to the lease's duration.
    pub async fn persist(&self, batch: &[Settlement]) -> Result<Settled, TransportError> {
        let end = Instant::now() + self.subscription.lease;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.persist_once(batch).await {
                Err(error) if error.is_transient() && Instant::now() + pause < end => {
                    tracing::warn!(%error, group = self.group(), "settling failed; retrying");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                Err(error) => return Err(transport_error(error)),
                Ok(mut settled) => {
                    self.promote_later(std::mem::take(&mut settled.busy_keys));
                    // A key's next delivery may be due now.
                    self.wake.send_replace(());
                    return Ok(settled);
                }
            }
        }
    }

    async fn persist_once(&self, batch: &[Settlement]) -> postrider::Result<Settled> {
        let mut tx = self.transport.pool.begin().await?;
        let settled = self
            .transport
            .queue
            .settle_many_in(&mut tx, &self.owner, batch)
            .await?;
        tx.commit().await?;
        Ok(settled)
    }
}
