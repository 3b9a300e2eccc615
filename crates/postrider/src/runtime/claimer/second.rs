//! The second claimer, for backlogs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Claimer, Position};
use crate::conn::StickyConn;
use crate::lease::Share;

/// The first claimer's share while the second is active.
pub(super) const FIRST_HALF: Share = Share { of: 2, number: 0 };
const SECOND_HALF: Share = Share { of: 2, number: 1 };

impl Claimer {
    /// Joins when signalled, until stopped.
    pub(super) async fn second(self: Arc<Self>, stop: CancellationToken) {
        let mut connection = StickyConn::new(self.worker_pool.clone());
        let called = || stop.run_until_cancelled(self.second_claimer.wanted.notified());
        while called().await.is_some() {
            self.second_claimer.active.store(true, Ordering::Relaxed);
            self.clear_half(&mut connection, &stop).await;
            self.second_claimer.active.store(false, Ordering::Relaxed);
            connection.release();
        }
    }

    /// Claims full batches of its half for as long as there are any.
    async fn clear_half(&self, connection: &mut StickyConn, stop: &CancellationToken) {
        let mut position = Position::new();
        loop {
            let Some(pending) = stop
                .run_until_cancelled(self.wait_for_room(connection))
                .await
            else {
                return;
            };
            let (sent, from) = (Instant::now(), position.begin());
            let claiming = self.claim(connection, pending.items, from, SECOND_HALF, stop);
            let claimed = match claiming.await {
                Some(Ok(claimed)) => claimed,
                Some(Err(error)) => return self.report(&error),
                None => return,
            };
            let full_batch = self.is_full_batch(&claimed, &pending);
            position.claimed(&claimed, full_batch, sent);
            self.dispatch(claimed, pending, sent);
            if !full_batch {
                return;
            }
        }
    }
}
