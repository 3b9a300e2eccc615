//! The rate on an empty table, in front of many that are ready, and beside many in the future.

use anyhow::Result;

use super::Bench;
use crate::adapter::Order;
use crate::drain::Until;
use crate::plan::say;

/// Seconds; far enough for no item to become due during a run.
const FUTURE: u64 = 7 * 24 * 3600;

impl Bench {
    /// The rate of the same number of items in each state of the table.
    pub(super) async fn depth(&mut self) -> Result<()> {
        let (deep, count) = self.plan.depth;
        for round in 1..=self.plan.rounds.min(2) {
            say(&format!("depth: round {round}"));
            for (state, ready, future) in [("empty", 0, 0), ("ready", deep, 0), ("future", 0, deep)]
            {
                let measure = format!("depth/{state}");
                for entry in &self.long() {
                    let order = Order::new("work", count);
                    let drained = self
                        .turn(&measure, entry, async |turn| {
                            if future > 0 {
                                turn.fill(future, 0, FUTURE).await?;
                            }
                            turn.fill(count + ready, 0, 0).await?;
                            turn.cluster.analyze(&turn.database).await?;
                            turn.work(&order, 1, Until::Reached(count)).await
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
}
