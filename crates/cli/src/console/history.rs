//! Queue depth and age over the last fifteen minutes, for charts.
//!
//! The database knows what ended when and what is due now, but not what was due before. Each process that serves the
//! console samples that since its start.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use crate::operate::{Operate, overview::Overview};

const INTERVAL: Duration = Duration::from_secs(5);

/// Fifteen minutes of samples.
const MAX_SAMPLES: usize = 180;

/// A service at one point in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Due items that have not started.
    pub due: f64,
    /// Age of the oldest of them, in seconds.
    pub oldest: f64,
}

/// Samples by service.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<BTreeMap<String, VecDeque<Sample>>>);

impl History {
    /// Samples until the history is dropped. Call it inside a tokio runtime.
    pub fn start(operate: Operate) -> Arc<Self> {
        let history = Arc::new(Self::default());
        tokio::spawn(watch(operate, Arc::downgrade(&history)));
        history
    }

    /// Samples of a service, oldest first.
    pub fn of(&self, service: &str) -> Vec<Sample> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(service)
            .map(|seen| seen.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Samples of all services together: depths add up, ages take the maximum.
    pub fn total(&self) -> Vec<Sample> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = seen.values().map(VecDeque::len).max().unwrap_or_default();
        let mut all = vec![
            Sample {
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

    fn record(&self, overview: &Overview) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for service in &overview.services {
            let line = seen.entry(service.name.clone()).or_default();
            if line.len() == MAX_SAMPLES {
                line.pop_front();
            }
            #[expect(clippy::cast_precision_loss, reason = "a place on a chart")]
            line.push_back(Sample {
                due: service.ready.count as f64,
                oldest: service.oldest_seconds.unwrap_or_default(),
            });
        }
    }
}

async fn watch(operate: Operate, history: Weak<History>) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let overview = operate.overview().await;
        let Some(history) = history.upgrade() else {
            return;
        };
        match overview {
            Ok(overview) => history.record(&overview),
            Err(error) => {
                tracing::debug!(%error, "can't sample the overview; the console's charts have a gap");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_add_up_from_their_latest_sample() {
        let history = History::default();
        let seen = |due, oldest| Sample { due, oldest };
        {
            let mut lines = history.0.lock().expect("not poisoned");
            lines.insert("old".into(), [seen(1.0, 9.0), seen(2.0, 1.0)].into());
            lines.insert("new".into(), [seen(5.0, 3.0)].into());
        }
        assert_eq!(history.total(), [seen(1.0, 9.0), seen(7.0, 3.0)]);
        assert!(history.of("none").is_empty());
    }
}
