//! Single enqueues, one commit each: alone and, for ours, grouped.

use anyhow::Result;

use super::Bench;
use crate::adapter::Order;
use crate::limit;
use crate::peer::OURS;
use crate::plan::say;
use crate::results::LIMIT;

impl Bench {
    /// Eight clients for everybody, 64 for those of the long scenarios, 64 grouped callers for ours.
    pub(super) async fn enqueue(&mut self) -> Result<()> {
        for round in 1..=self.plan.rounds {
            say(&format!("enqueue: round {round} of {}", self.plan.rounds));
            for clients in [8, 64] {
                self.singles(clients).await?;
            }
            let ours: Vec<_> = self
                .peers
                .iter()
                .filter(|(peer, _)| peer.name == OURS)
                .cloned()
                .collect();
            for entry in &ours {
                let order = Order {
                    clients: 64,
                    ..Order::new("grouped", self.plan.singles * 4)
                };
                self.single("enqueue/grouped/64", entry, &order).await;
            }
            say("enqueue/copy: limit");
            let copied = limit::copy(&self.cluster, self.plan.drain * 4).await?;
            self.results
                .note("enqueue/bulk", "items/s", LIMIT, "COPY of 10,000", copied);
        }
        Ok(())
    }

    async fn singles(&mut self, clients: usize) -> Result<()> {
        let measure = format!("enqueue/single/{clients}");
        let count = self.plan.singles * if clients > 8 { 2 } else { 1 };
        say(&format!("{measure}: limit"));
        limit::singles(&self.cluster, &mut self.results, &measure, clients, count).await?;
        let everybody = if clients > 8 {
            self.long()
        } else {
            self.peers.clone()
        };
        for entry in &everybody {
            let order = Order {
                clients,
                ..Order::new("singles", count)
            };
            self.single(&measure, entry, &order).await;
        }
        Ok(())
    }

    async fn single(
        &mut self,
        measure: &str,
        entry: &(crate::peer::Peer, crate::install::Program),
        order: &Order,
    ) {
        let enqueued = self
            .turn(measure, entry, async |turn| turn.enqueue(order).await)
            .await;
        if let Some((done, settings)) = enqueued {
            let rate = done.items as f64 / done.seconds.max(1e-6);
            self.results
                .note(measure, "items/s", entry.0.name, &settings, rate);
        }
    }
}
