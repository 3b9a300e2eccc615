//! Drains: a full queue, emptied with best settings or with those of a first-time user.

use anyhow::Result;

use super::Bench;
use crate::adapter::Order;
use crate::drain::{Drained, Until};
use crate::plan::say;

/// One way to drain.
struct Variant {
    name: &'static str,
    bytes: usize,
    processes: usize,
    everybody: bool,
}

const VARIANTS: [Variant; 5] = [
    Variant {
        name: "tiny",
        bytes: 0,
        processes: 1,
        everybody: true,
    },
    Variant {
        name: "tiny",
        bytes: 0,
        processes: 2,
        everybody: true,
    },
    Variant {
        name: "tiny",
        bytes: 0,
        processes: 4,
        everybody: false,
    },
    Variant {
        name: "1KB",
        bytes: 1024,
        processes: 1,
        everybody: true,
    },
    Variant {
        name: "8KB",
        bytes: 8192,
        processes: 1,
        everybody: false,
    },
];

/// What a fill and a drain cost and brought.
struct Account {
    bulk_rate: f64,
    bulk_settings: String,
    bulk_wal: f64,
    drained: Drained,
    drain_wal: f64,
    commits: f64,
    dead: f64,
}

impl Bench {
    /// All variants with best settings.
    pub(super) async fn drains(&mut self) -> Result<()> {
        for variant in &VARIANTS {
            for round in 1..=self.plan.rounds {
                say(&format!("drain: round {round} of {}", self.plan.rounds));
                self.variant(variant).await;
            }
        }
        Ok(())
    }

    async fn variant(&mut self, variant: &Variant) {
        let measure = format!("drain/{}/{}", variant.name, variant.processes);
        let count = if variant.bytes > 4096 {
            self.plan.drain_large
        } else {
            self.plan.drain
        };
        let first = variant.bytes == 0 && variant.processes == 1;
        let everybody = if variant.everybody {
            self.peers.clone()
        } else {
            self.long()
        };
        for entry in &everybody {
            let order = Order {
                bytes: variant.bytes,
                ..Order::new("work", count)
            };
            let account = self
                .turn(&measure, entry, async |turn| {
                    let before = turn.meter().await?;
                    let (filled, bulk_settings) = turn.fill(count, variant.bytes, 0).await?;
                    let filling = turn.cluster.since(&turn.database, before).await?;
                    turn.cluster.analyze(&turn.database).await?;
                    let before = turn.meter().await?;
                    let drained = turn.work(&order, variant.processes, Until::Empty).await?;
                    let draining = turn.cluster.since(&turn.database, before).await?;
                    let each = |total: i64| total as f64 / count as f64;
                    Ok(Account {
                        bulk_rate: filled.items as f64 / filled.seconds.max(1e-6),
                        bulk_settings,
                        bulk_wal: each(filling.wal_bytes),
                        drain_wal: each(draining.wal_bytes),
                        commits: each(draining.commits - drained.questions),
                        dead: turn.cluster.dead_tuples(&turn.database).await? as f64,
                        drained,
                    })
                })
                .await;
            let Some(account) = account else { continue };
            let name = entry.0.name;
            let words = account.drained.settings.as_str();
            self.results
                .note(&measure, "items/s", name, words, account.drained.rate);
            if first {
                let bulk = account.bulk_settings.as_str();
                self.results
                    .note("enqueue/bulk", "items/s", name, bulk, account.bulk_rate);
                self.results
                    .note("wal/bulk", "bytes/item", name, bulk, account.bulk_wal);
                self.results
                    .note("wal/drain", "bytes/item", name, words, account.drain_wal);
                let both = account.bulk_wal + account.drain_wal;
                self.results
                    .note("wal/bulk+drain", "bytes/item", name, words, both);
                self.results.note(
                    "commits/drain",
                    "commits/item",
                    name,
                    words,
                    account.commits,
                );
                self.results.note(
                    "dead tuples/drain",
                    "row versions",
                    name,
                    words,
                    account.dead,
                );
            }
        }
    }

    /// What a first-time user gets. Slow ones are watched for a while, not to their end.
    pub(super) async fn defaults(&mut self) -> Result<()> {
        let (count, limit) = (self.plan.drain, self.plan.defaults);
        for round in 1..=self.plan.rounds.min(2) {
            say(&format!("defaults: round {round}"));
            for entry in &self.peers.clone() {
                let order = Order {
                    best: false,
                    ..Order::new("work", count)
                };
                let drained = self
                    .turn("defaults/tiny/1", entry, async |turn| {
                        turn.fill(count, 0, 0).await?;
                        turn.cluster.analyze(&turn.database).await?;
                        turn.work(&order, 1, Until::EmptyOr(limit)).await
                    })
                    .await;
                if let Some(drained) = drained {
                    let name = entry.0.name;
                    self.results.note(
                        "defaults/tiny/1",
                        "items/s",
                        name,
                        &drained.settings,
                        drained.rate,
                    );
                }
            }
        }
        Ok(())
    }
}
