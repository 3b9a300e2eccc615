//! Exponential backoff with a deadline, for calls that met a transient broker error.

use std::time::Duration;

use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Pauses between attempts until a deadline.
#[derive(Debug)]
pub(crate) struct Backoff {
    deadline: Instant,
    pause: Duration,
}

impl Backoff {
    pub fn within(timeout: Duration) -> Self {
        Self {
            deadline: Instant::now() + timeout,
            pause: FIRST_PAUSE,
        }
    }

    /// Waits before the next attempt. False if that attempt would start after the deadline.
    pub async fn wait(&mut self) -> bool {
        if Instant::now() + self.pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempts_end_at_the_deadline() {
        let start = Instant::now();
        let mut backoff = Backoff::within(Duration::from_secs(10));
        let mut attempts = 1;
        while backoff.wait().await {
            attempts += 1;
        }
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!((10..20).contains(&attempts), "{attempts}");
        assert!(!Backoff::within(Duration::ZERO).wait().await);
    }
}
