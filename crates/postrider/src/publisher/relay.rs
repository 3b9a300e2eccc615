//! If the transport lives in the outbox's own database, messages move without leases, before the claims.

use std::sync::Arc;

use sqlx::PgPool;
use tokio::sync::OnceCell;

use super::count;
use crate::Result;
use crate::transport::{Relay, Transport};

pub(super) struct LeaseFreeRelay {
    pub transport: Arc<dyn Transport>,
    pub pool: PgPool,
    pub request: Relay,
    /// Asked until there is an answer, then remembered.
    pub shares: OnceCell<bool>,
}

impl LeaseFreeRelay {
    /// Moves what it can; returns the number of messages.
    pub async fn relay(self: Arc<Self>) -> Result<u64> {
        let asking = || self.transport.shares(&self.pool);
        match self.shares.get_or_try_init(asking).await {
            Ok(true) => {}
            Ok(false) => return Ok(0),
            Err(error) => {
                // The next claim reports the outage.
                tracing::debug!(%error, "can't tell yet whether the transport shares the outbox's database; messages are claimed instead");
                return Ok(0);
            }
        }
        postrider_crashpoint::point!("relay.before")?;
        let moved = self.transport.relay(&self.request).await?;
        if moved > 0 {
            postrider_crashpoint::point!("relay.after")?;
            count(self.transport.name(), "confirmed", moved);
        }
        Ok(moved)
    }
}
