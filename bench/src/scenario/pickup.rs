//! Pick-up time: from the return of the enqueuing commit to the start of the handler, at light
//! load, with producer and worker in different processes.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Bench;
use crate::adapter::{Adapter, Order};
use crate::drain::{Crew, Until};
use crate::plan::say;
use crate::results::percentile;

impl Bench {
    /// A hundred items a second.
    pub(super) async fn pickup(&mut self) -> Result<()> {
        let count = self.plan.pickup;
        for round in 1..=self.plan.rounds.min(2) {
            say(&format!("pickup: round {round}"));
            for entry in &self.peers.clone() {
                let work = Order {
                    timeline: true,
                    ..Order::new("work", count)
                };
                let produce = Order::new("produce", count);
                let waits = self
                    .turn("pickup/p50", entry, async |turn| {
                        let url = turn.cluster.url(&turn.database);
                        let crew = Crew::hire(turn.peer, turn.program, &url, &work, 1).await?;
                        let mut producer =
                            Adapter::start(turn.peer.name, turn.program, &url, &produce).await?;
                        let producing = async {
                            // A worker that has only just been started is not what is measured.
                            tokio::time::sleep(Duration::from_secs(2)).await;
                            producer.tell().await?;
                            producer.done().await
                        };
                        let working = crew.drain(
                            turn.cluster,
                            turn.peer,
                            &turn.database,
                            count,
                            Until::Empty,
                        );
                        let (produced, drained) = tokio::try_join!(producing, working)?;
                        let waits = join(&produced.times, &drained.started)?;
                        ensure!(
                            waits.len() as u64 == count,
                            "{} of {count} items were timed",
                            waits.len()
                        );
                        Ok((waits, drained.settings))
                    })
                    .await;
                let Some((waits, settings)) = waits else {
                    continue;
                };
                for hundredths in [50, 95, 99] {
                    let measure = format!("pickup/p{hundredths}");
                    let value = percentile(&waits, hundredths);
                    self.results
                        .note(&measure, "ms", entry.0.name, &settings, value);
                }
            }
        }
        Ok(())
    }
}

/// Milliseconds from commit to start, sorted. A handler can start before its producer has heard
/// of the commit; that counts as no wait.
fn join(committed: &[(u64, u64)], started: &[(u64, u64)]) -> Result<Vec<f64>> {
    let commits: HashMap<u64, u64> = committed.iter().copied().collect();
    let mut waits = Vec::with_capacity(started.len());
    for (item, start) in started {
        let Some(commit) = commits.get(item) else {
            anyhow::bail!("item {item} was handled but never enqueued");
        };
        waits.push(start.saturating_sub(*commit) as f64 / 1000.0);
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_before_the_commit_was_heard_of_is_no_wait() -> Result<()> {
        let waits = join(&[(0, 1000), (1, 5000)], &[(1, 7500), (0, 900)])?;
        assert!(waits[0].abs() < 1e-9 && (waits[1] - 2.5).abs() < 1e-9);
        assert!(join(&[], &[(3, 1)]).is_err());
        Ok(())
    }
}
