//! The rate on an empty table, with many ready items behind, and with many scheduled items.

use anyhow::Result;

use super::Bench;
use crate::adapter::Request;
use crate::drain::Until;
use crate::plan::log;

/// Delay in seconds; no item becomes due during a run.
const FAR_DELAY: u64 = 7 * 24 * 3600;

impl Bench {
    /// Measures the same number of items in each state of the table.
    pub(super) async fn depth(&mut self) -> Result<()> {
        let (deep, count) = self.plan.depth;
        for round in 1..=self.plan.rounds.min(2) {
            log(&format!("depth: round {round}"));
            for (state, ready, future) in [("empty", 0, 0), ("ready", deep, 0), ("future", 0, deep)]
            {
                let measure = format!("depth/{state}");
                for entry in &self.long() {
                    let request = Request::new("work", count);
                    let drained = self
                        .turn(&measure, entry, async |turn| {
                            if future > 0 {
                                turn.fill(future, 0, FAR_DELAY).await?;
                            }
                            turn.fill(count + ready, 0, 0).await?;
                            turn.cluster.analyze(&turn.database).await?;
                            turn.work(&request, 1, Until::Reached(count)).await
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
}
