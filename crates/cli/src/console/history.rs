//! How much waited, and for how long, over the last quarter of an hour.
//!
//! The database knows what ended and when, and how much waits now; how much waited before is remembered here, by each
//! process that shows the console, since it started. Nothing depends on it but charts.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use crate::operate::{Operate, overview::Overview};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(5);

/// So many looks are a quarter of an hour.
const KEPT: usize = 180;

/// What was seen of one service at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    /// Due, and not begun.
    pub due: f64,
    /// For how long the oldest of them had waited, in seconds.
    pub oldest: f64,
}

/// What was seen, by service.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<BTreeMap<String, VecDeque<Seen>>>);

impl History {
    /// Begins to look, until nobody has the history any more. Call it inside a tokio runtime.
    pub fn begin(operate: Operate) -> Arc<Self> {
        let history = Arc::new(Self::default());
        tokio::spawn(watch(operate, Arc::downgrade(&history)));
        history
    }

    /// What was seen of a service, oldest first.
    pub fn of(&self, service: &str) -> Vec<Seen> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(service)
            .map(|seen| seen.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Of all services together: what waits adds up, the oldest is the oldest of all.
    pub fn of_all(&self) -> Vec<Seen> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = seen.values().map(VecDeque::len).max().unwrap_or_default();
        let mut all = vec![
            Seen {
                due: 0.0,
                oldest: 0.0
            };
            most
        ];
        for service in seen.values() {
            for (sum, one) in all.iter_mut().rev().zip(service.iter().rev()) {
                sum.due += one.due;
                sum.oldest = sum.oldest.max(one.oldest);
            }
        }
        all
    }

    fn note(&self, overview: &Overview) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for service in &overview.services {
            let line = seen.entry(service.name.clone()).or_default();
            if line.len() == KEPT {
                line.pop_front();
            }
            #[expect(clippy::cast_precision_loss, reason = "a place on a chart")]
            line.push_back(Seen {
                due: service.ready.count as f64,
                oldest: service.oldest_seconds.unwrap_or_default(),
            });
        }
    }
}

async fn watch(operate: Operate, history: Weak<History>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let overview = operate.overview().await;
        let Some(history) = history.upgrade() else {
            return;
        };
        match overview {
            Ok(overview) => history.note(&overview),
            Err(error) => tracing::debug!(%error, "the console's history has a gap"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_add_up_from_their_latest_look() {
        let history = History::default();
        let seen = |due, oldest| Seen { due, oldest };
        {
            let mut lines = history.0.lock().expect("nobody else");
            lines.insert("old".into(), [seen(1.0, 9.0), seen(2.0, 1.0)].into());
            lines.insert("new".into(), [seen(5.0, 3.0)].into());
        }
        assert_eq!(history.of_all(), [seen(1.0, 9.0), seen(7.0, 3.0)]);
        assert!(history.of("none").is_empty());
    }
}
