//! Long drains: with an open transaction elsewhere, and of many items with memory samples.

use anyhow::Result;
use sqlx::Connection;

use super::Bench;
use crate::adapter::Request;
use crate::drain::Until;
use crate::plan::log;

impl Bench {
    /// The same drain without and with a transaction that blocks vacuum.
    pub(super) async fn snapshot(&mut self) -> Result<()> {
        let count = self.plan.snapshot;
        for round in 1..=self.plan.rounds.min(2) {
            log(&format!("snapshot: round {round}"));
            for (state, open) in [("closed", false), ("open", true)] {
                let measure = format!("snapshot/{state}");
                for entry in &self.long() {
                    let request = Request::new("work", count);
                    let drained = self
                        .turn(&measure, entry, async |turn| {
                            turn.fill(count, 0, 0).await?;
                            turn.cluster.analyze(&turn.database).await?;
                            let mut other = turn.cluster.connect(&turn.database).await?;
                            if open {
                                // The first query takes the snapshot.
                                sqlx::raw_sql(
                                    "begin isolation level repeatable read; select count(*) from pg_class",
                                )
                                .execute(&mut other)
                                .await?;
                            }
                            let drained = turn.work(&request, 1, Until::Empty).await;
                            other.close().await?;
                            drained
                        })
                        .await;
                    if let Some(drained) = drained {
                        let name = entry.0.name;
                        self.results.record(
                            &measure,
                            "items/s",
                            name,
                            &drained.settings,
                            drained.rate,
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// A million items, with the worker's memory sampled throughout.
    pub(super) async fn sustained(&mut self) -> Result<()> {
        let count = self.plan.sustained;
        log("sustained");
        for entry in &self.long() {
            let request = Request::new("work", count);
            let drained = self
                .turn("sustained/rate", entry, async |turn| {
                    turn.fill(count, 0, 0).await?;
                    turn.cluster.analyze(&turn.database).await?;
                    turn.work(&request, 1, Until::Empty).await
                })
                .await;
            let Some(drained) = drained else { continue };
            let (name, settings) = (entry.0.name, drained.settings.as_str());
            self.results
                .record("sustained/rate", "items/s", name, settings, drained.rate);
            let samples: Vec<u64> = drained.memory.iter().map(|(_, bytes)| *bytes).collect();
            let Some((peak, growth)) = memory(&samples) else {
                continue;
            };
            self.results
                .record("sustained/memory", "MB at most", name, settings, peak);
            self.results
                .record("sustained/growth", "× second half", name, settings, growth);
        }
        Ok(())
    }
}

/// The peak in megabytes, and the second half's peak as a multiple of the first half's.
fn memory(samples: &[u64]) -> Option<(f64, f64)> {
    let (first, second) = samples.split_at_checked(samples.len() / 2)?;
    let (first, second) = (*first.iter().max()?, *second.iter().max()?);
    let peak = first.max(second) as f64 / 1e6;
    Some((peak, second as f64 / first as f64))
}
