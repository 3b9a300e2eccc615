//! Drains of a full queue, with best settings and with defaults.

use anyhow::Result;

use super::Bench;
use crate::adapter::Request;
use crate::drain::{DrainResult, Until};
use crate::plan::log;

/// One way to drain.
struct Variant {
    name: &'static str,
    bytes: usize,
    processes: usize,
    all_peers: bool,
}

const VARIANTS: [Variant; 5] = [
    Variant {
        name: "tiny",
        bytes: 0,
        processes: 1,
        all_peers: true,
    },
    Variant {
        name: "tiny",
        bytes: 0,
        processes: 2,
        all_peers: true,
    },
    Variant {
        name: "tiny",
        bytes: 0,
        processes: 4,
        all_peers: false,
    },
    Variant {
        name: "1KB",
        bytes: 1024,
        processes: 1,
        all_peers: true,
    },
    Variant {
        name: "8KB",
        bytes: 8192,
        processes: 1,
        all_peers: false,
    },
];

/// The figures of a fill and a drain.
struct Figures {
    bulk_rate: f64,
    bulk_settings: String,
    bulk_wal: f64,
    drained: DrainResult,
    drain_wal: f64,
    commits: f64,
    dead: f64,
}

impl Bench {
    /// All variants with best settings.
    pub(super) async fn drains(&mut self) -> Result<()> {
        for variant in &VARIANTS {
            for round in 1..=self.plan.rounds {
                log(&format!("drain: round {round} of {}", self.plan.rounds));
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
        let peers = if variant.all_peers {
            self.peers.clone()
        } else {
            self.long()
        };
        for entry in &peers {
            let request = Request {
                bytes: variant.bytes,
                ..Request::new("work", count)
            };
            let figures = self
                .turn(&measure, entry, async |turn| {
                    let before = turn.meter().await?;
                    let (filled, bulk_settings) = turn.fill(count, variant.bytes, 0).await?;
                    let filling = turn.cluster.since(&turn.database, before).await?;
                    turn.cluster.analyze(&turn.database).await?;
                    let before = turn.meter().await?;
                    let drained = turn.work(&request, variant.processes, Until::Empty).await?;
                    let draining = turn.cluster.since(&turn.database, before).await?;
                    let each = |total: i64| total as f64 / count as f64;
                    Ok(Figures {
                        bulk_rate: filled.items as f64 / filled.seconds.max(1e-6),
                        bulk_settings,
                        bulk_wal: each(filling.wal_bytes),
                        drain_wal: each(draining.wal_bytes),
                        commits: each(draining.commits - drained.harness_queries),
                        dead: turn.cluster.dead_tuples(&turn.database).await? as f64,
                        drained,
                    })
                })
                .await;
            let Some(figures) = figures else { continue };
            let name = entry.0.name;
            let settings = figures.drained.settings.as_str();
            self.results
                .record(&measure, "items/s", name, settings, figures.drained.rate);
            if first {
                let bulk = figures.bulk_settings.as_str();
                self.results
                    .record("enqueue/bulk", "items/s", name, bulk, figures.bulk_rate);
                self.results
                    .record("wal/bulk", "bytes/item", name, bulk, figures.bulk_wal);
                self.results
                    .record("wal/drain", "bytes/item", name, settings, figures.drain_wal);
                let both = figures.bulk_wal + figures.drain_wal;
                self.results
                    .record("wal/bulk+drain", "bytes/item", name, settings, both);
                self.results.record(
                    "commits/drain",
                    "commits/item",
                    name,
                    settings,
                    figures.commits,
                );
                self.results.record(
                    "dead tuples/drain",
                    "row versions",
                    name,
                    settings,
                    figures.dead,
                );
            }
        }
    }

    /// Drains with default settings. Slow ones are stopped after a while.
    pub(super) async fn defaults(&mut self) -> Result<()> {
        let (count, limit) = (self.plan.drain, self.plan.defaults);
        for round in 1..=self.plan.rounds.min(2) {
            log(&format!("defaults: round {round}"));
            for entry in &self.peers.clone() {
                let request = Request {
                    best: false,
                    ..Request::new("work", count)
                };
                let drained = self
                    .turn("defaults/tiny/1", entry, async |turn| {
                        turn.fill(count, 0, 0).await?;
                        turn.cluster.analyze(&turn.database).await?;
                        turn.work(&request, 1, Until::EmptyOr(limit)).await
                    })
                    .await;
                if let Some(drained) = drained {
                    let name = entry.0.name;
                    self.results.record(
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
