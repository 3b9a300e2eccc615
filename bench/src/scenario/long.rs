//! Long drains: with a transaction left open elsewhere, and over many items with an eye on memory.

use anyhow::Result;
use sqlx::Connection;

use super::Bench;
use crate::adapter::Order;
use crate::drain::Until;
use crate::plan::say;

impl Bench {
    /// The same drain without and with a transaction that holds vacuum back.
    pub(super) async fn snapshot(&mut self) -> Result<()> {
        let count = self.plan.snapshot;
        for round in 1..=self.plan.rounds.min(2) {
            say(&format!("snapshot: round {round}"));
            for (state, open) in [("closed", false), ("open", true)] {
                let measure = format!("snapshot/{state}");
                for entry in &self.long() {
                    let order = Order::new("work", count);
                    let drained = self
                        .turn(&measure, entry, async |turn| {
                            turn.fill(count, 0, 0).await?;
                            turn.cluster.analyze(&turn.database).await?;
                            let mut other = turn.cluster.connect(&turn.database).await?;
                            if open {
                                // The first query of such a transaction takes the snapshot.
                                sqlx::raw_sql(
                                    "begin isolation level repeatable read; select count(*) from pg_class",
                                )
                                .execute(&mut other)
                                .await?;
                            }
                            let drained = turn.work(&order, 1, Until::Empty).await;
                            other.close().await?;
                            drained
                        })
                        .await;
                    if let Some(drained) = drained {
                        let name = entry.0.name;
                        self.results.note(
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

    /// A million items; the worker's memory is sampled all the while.
    pub(super) async fn sustained(&mut self) -> Result<()> {
        let count = self.plan.sustained;
        say("sustained");
        for entry in &self.long() {
            let order = Order::new("work", count);
            let drained = self
                .turn("sustained/rate", entry, async |turn| {
                    turn.fill(count, 0, 0).await?;
                    turn.cluster.analyze(&turn.database).await?;
                    turn.work(&order, 1, Until::Empty).await
                })
                .await;
            let Some(drained) = drained else { continue };
            let (name, words) = (entry.0.name, drained.settings.as_str());
            self.results
                .note("sustained/rate", "items/s", name, words, drained.rate);
            let samples: Vec<u64> = drained.memory.iter().map(|(_, bytes)| *bytes).collect();
            let Some((peak, growth)) = memory(&samples) else {
                continue;
            };
            self.results
                .note("sustained/memory", "MB at most", name, words, peak);
            self.results
                .note("sustained/growth", "× second half", name, words, growth);
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
