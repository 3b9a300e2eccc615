//! Ahead of the claims: where the transport lives in the outbox's own database, messages go over without leases.

use std::sync::Arc;

use sqlx::PgPool;
use tokio::sync::OnceCell;

use super::count;
use crate::Result;
use crate::transport::{Relay, Transport};

pub(super) struct Relaying {
    pub transport: Arc<dyn Transport>,
    pub pool: PgPool,
    pub order: Relay,
    /// Asked once, as soon as there is an answer.
    pub shares: OnceCell<bool>,
}

impl Relaying {
    /// Moves what it can; says how many.
    pub async fn ahead(self: Arc<Self>) -> Result<u64> {
        let asking = || self.transport.shares(&self.pool);
        match self.shares.get_or_try_init(asking).await {
            Ok(true) => {}
            Ok(false) => return Ok(0),
            Err(error) => {
                // Whoever claims next says so loudly.
                tracing::debug!(%error, "whether the transport shares the outbox's database is not known yet");
                return Ok(0);
            }
        }
        postrider_crashpoint::point!("relay.before")?;
        let moved = self.transport.relay(&self.order).await?;
        if moved > 0 {
            postrider_crashpoint::point!("relay.after")?;
            count(self.transport.name(), "confirmed", moved);
        }
        Ok(moved)
    }
}
