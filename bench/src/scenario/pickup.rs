//! Pick-up time: from the return of the enqueuing commit to the start of the handler, at light
//! load, with producer and worker in different processes.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Bench;
use crate::adapter::{Adapter, Request};
use crate::drain::{Until, WorkerGroup};
use crate::plan::log;
use crate::results::percentile;

impl Bench {
    /// 100 items per second.
    pub(super) async fn pickup(&mut self) -> Result<()> {
        let count = self.plan.pickup;
        for round in 1..=self.plan.rounds.min(2) {
            log(&format!("pickup: round {round}"));
            for entry in &self.peers.clone() {
                let work = Request {
                    timeline: true,
                    ..Request::new("work", count)
                };
                let produce = Request::new("produce", count);
                let waits = self
                    .turn("pickup/p50", entry, async |turn| {
                        let url = turn.cluster.url(&turn.database);
                        let workers =
                            WorkerGroup::start(turn.peer, turn.program, &url, &work, 1).await?;
                        let mut producer =
                            Adapter::start(turn.peer.name, turn.program, &url, &produce).await?;
                        let producing = async {
                            // The start of the worker is not measured.
                            tokio::time::sleep(Duration::from_secs(2)).await;
                            producer.signal().await?;
                            producer.done().await
                        };
                        let working = workers.drain(
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
                            "only {} of {count} items have times",
                            waits.len()
                        );
                        Ok((waits, drained.settings))
                    })
                    .await;
                let Some((waits, settings)) = waits else {
                    continue;
                };
                for percent in [50, 95, 99] {
                    let measure = format!("pickup/p{percent}");
                    let value = percentile(&waits, percent);
                    self.results
                        .record(&measure, "ms", entry.0.name, &settings, value);
                }
            }
        }
        Ok(())
    }
}

/// Milliseconds from commit to start, sorted. A handler may start before the commit returns to the producer; that counts
/// as zero.
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
    fn start_before_the_commit_returned_counts_as_zero() -> Result<()> {
        let waits = join(&[(0, 1000), (1, 5000)], &[(1, 7500), (0, 900)])?;
        assert!(waits[0].abs() < 1e-9 && (waits[1] - 2.5).abs() < 1e-9);
        assert!(join(&[], &[(3, 1)]).is_err());
        Ok(())
    }
}
