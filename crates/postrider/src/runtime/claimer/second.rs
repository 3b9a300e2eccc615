//! The second claimer, for backlogs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Claimer, Position};
use crate::conn::StickyConn;
use crate::lease::Share;

/// What is left to the first while the second is at work.
pub(super) const FIRST_HALF: Share = Share { of: 2, number: 0 };
const SECOND_HALF: Share = Share { of: 2, number: 1 };

impl Claimer {
    /// Helps whenever it is called, until told to stop.
    pub(super) async fn second(self: Arc<Self>, stop: CancellationToken) {
        let mut connection = StickyConn::new(self.side.clone());
        let called = || stop.run_until_cancelled(self.help.wanted.notified());
        while called().await.is_some() {
            self.help.at_work.store(true, Ordering::Relaxed);
            self.clear_half(&mut connection, &stop).await;
            self.help.at_work.store(false, Ordering::Relaxed);
            connection.release();
        }
    }

    /// Claims whole batches of its half for as long as there are any.
    async fn clear_half(&self, connection: &mut StickyConn, stop: &CancellationToken) {
        let mut position = Position::new();
        loop {
            let Some(asked) = stop.run_until_cancelled(self.room(connection)).await else {
                return;
            };
            let (sent, from) = (Instant::now(), position.begin());
            let claiming = self.claim(connection, asked.items, from, SECOND_HALF, stop);
            let claimed = match claiming.await {
                Some(Ok(claimed)) => claimed,
                Some(Err(error)) => return self.report(&error),
                None => return,
            };
            let whole_batch = self.is_whole_batch(&claimed, &asked);
            position.claimed(&claimed, whole_batch, sent);
            self.dispatch(claimed, asked, sent);
            if !whole_batch {
                return;
            }
        }
    }
}
