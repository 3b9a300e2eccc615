//! Single enqueues with one commit each; for Postrider also with group commit.

use anyhow::Result;

use super::Bench;
use crate::adapter::Request;
use crate::limit;
use crate::peer::OURS;
use crate::plan::log;
use crate::results::LIMIT;

impl Bench {
    /// 8 clients for all systems, 64 for those of the long scenarios, 64 callers of a group commit for Postrider.
    pub(super) async fn enqueue(&mut self) -> Result<()> {
        for round in 1..=self.plan.rounds {
            log(&format!("enqueue: round {round} of {}", self.plan.rounds));
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
                let request = Request {
                    clients: 64,
                    ..Request::new("grouped", self.plan.singles * 4)
                };
                self.single("enqueue/grouped/64", entry, &request).await;
            }
            log("enqueue/copy: limit");
            let copied = limit::copy(&self.cluster, self.plan.drain * 4).await?;
            self.results
                .record("enqueue/bulk", "items/s", LIMIT, "COPY of 10,000", copied);
        }
        Ok(())
    }

    async fn singles(&mut self, clients: usize) -> Result<()> {
        let measure = format!("enqueue/single/{clients}");
        let count = self.plan.singles * if clients > 8 { 2 } else { 1 };
        log(&format!("{measure}: limit"));
        limit::singles(&self.cluster, &mut self.results, &measure, clients, count).await?;
        let peers = if clients > 8 {
            self.long()
        } else {
            self.peers.clone()
        };
        for entry in &peers {
            let request = Request {
                clients,
                ..Request::new("singles", count)
            };
            self.single(&measure, entry, &request).await;
        }
        Ok(())
    }

    async fn single(
        &mut self,
        measure: &str,
        entry: &(crate::peer::Peer, crate::install::Program),
        request: &Request,
    ) {
        let enqueued = self
            .turn(measure, entry, async |turn| turn.enqueue(request).await)
            .await;
        if let Some((done, settings)) = enqueued {
            let rate = done.items as f64 / done.seconds.max(1e-6);
            self.results
                .record(measure, "items/s", entry.0.name, &settings, rate);
        }
    }
}
