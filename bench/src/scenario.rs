//! The scenarios. Each runs in rounds in which every system takes a turn, so that a machine that gets slower or faster
//! affects all of them.

mod depth;
mod drains;
mod enqueue;
mod evidence;
mod exports;
mod kafka;
mod long;
mod orders;
mod payments;
mod pickup;

use anyhow::{Context, Result, ensure};
use sqlx::Connection;

use crate::adapter::{Adapter, Done, Request};
use crate::cluster::{Cluster, Meter};
use crate::drain::{DrainResult, Until, WorkerGroup, left};
use crate::install::Program;
use crate::peer::Peer;
use crate::plan::{Plan, log};
use crate::results::Results;

/// Shared state of the scenarios.
#[derive(Debug)]
pub struct Bench {
    cluster: Cluster,
    peers: Vec<(Peer, Program)>,
    plan: Plan,
    results: Results,
}

/// One turn: a system on its own database.
#[derive(Debug)]
struct Turn<'a> {
    cluster: &'a Cluster,
    peer: &'a Peer,
    program: &'a Program,
    database: String,
}

impl Bench {
    /// Nothing measured yet.
    pub fn new(
        cluster: Cluster,
        peers: Vec<(Peer, Program)>,
        plan: Plan,
        results: Results,
    ) -> Self {
        Self {
            cluster,
            peers,
            plan,
            results,
        }
    }

    /// Returns cluster and results.
    pub fn finish(self) -> (Cluster, Results) {
        (self.cluster, self.results)
    }

    /// Runs all scenarios of the plan.
    pub async fn run(&mut self) -> Result<()> {
        self.templates().await?;
        if self.plan.wants("enqueue") {
            self.enqueue().await?;
        }
        if self.plan.wants("drain") {
            self.drains().await?;
        }
        if self.plan.wants("defaults") {
            self.defaults().await?;
        }
        if self.plan.wants("pickup") {
            self.pickup().await?;
        }
        if self.plan.wants("depth") {
            self.depth().await?;
        }
        if self.plan.wants("snapshot") {
            self.snapshot().await?;
        }
        if self.plan.wants("sustained") {
            self.sustained().await?;
        }
        if self.plan.wants("orders") {
            self.orders().await?;
        }
        if self.plan.wants("exports") {
            self.exports().await?;
        }
        if self.plan.wants("payments") {
            self.payments().await?;
        }
        if self.plan.wants("evidence") {
            self.evidence().await?;
        }
        if self.plan.wants("kafka") {
            self.kafka().await?;
        }
        Ok(())
    }

    /// Sets up each system once; each turn gets a copy of the database.
    async fn templates(&mut self) -> Result<()> {
        let mut available = Vec::new();
        for (peer, program) in std::mem::take(&mut self.peers) {
            let template = template(&peer);
            self.cluster.create_database(&template, None).await?;
            let url = self.cluster.url(&template);
            match Adapter::setup(peer.name, &program, &url).await {
                Ok(()) => available.push((peer, program)),
                Err(error) => {
                    log(&format!("{error:#}"));
                    self.results
                        .record_unavailable(peer.name, &format!("{error:#}"));
                }
            }
        }
        self.peers = available;
        Ok(())
    }

    /// The systems of the long scenarios.
    fn long(&self) -> Vec<(Peer, Program)> {
        let chosen = |(peer, _): &&(Peer, Program)| peer.long || !self.plan.all_peers;
        self.peers.iter().filter(chosen).cloned().collect()
    }

    /// Runs a turn. An error is recorded and does not affect other systems.
    async fn turn<T>(
        &mut self,
        measure: &str,
        (peer, program): &(Peer, Program),
        run: impl AsyncFnOnce(Turn<'_>) -> Result<T>,
    ) -> Option<T> {
        log(&format!("{measure}: {}", peer.name));
        let database = format!("run_{}", peer.name.replace('-', "_"));
        let outcome = match self
            .cluster
            .create_database(&database, Some(&template(peer)))
            .await
        {
            Ok(()) => {
                let cluster = &self.cluster;
                let database = database.clone();
                run(Turn {
                    cluster,
                    peer,
                    program,
                    database,
                })
                .await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = self.cluster.drop_database(&database).await {
            log(&format!("{measure}: can't drop {database}: {error:#}"));
        }
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                log(&format!("{measure}: {}: {error:#}", peer.name));
                self.results.fail(measure, peer.name, &format!("{error:#}"));
                None
            }
        }
    }
}

fn template(peer: &Peer) -> String {
    format!("template_{}", peer.name.replace('-', "_"))
}

impl Turn<'_> {
    /// Enqueues items and checks that the database has them.
    async fn enqueue(&self, request: &Request) -> Result<(Done, String)> {
        let before = self.left().await?;
        let url = self.cluster.url(&self.database);
        let mut adapter = Adapter::start(self.peer.name, self.program, &url, request).await?;
        let settings = adapter.settings.clone();
        adapter.signal().await?;
        let done = adapter.done().await?;
        // A system that can only count finished items is checked by its drain.
        if let Some(before) = before {
            let after = self.left().await?.context("the items can't be counted")?;
            let added = u64::try_from(after - before).unwrap_or(0);
            ensure!(
                added == request.count,
                "{} got {} items, but {added} are stored",
                self.peer.name,
                request.count
            );
        }
        Ok((done, settings))
    }

    /// The number of unfinished items, where the database can tell.
    async fn left(&self) -> Result<Option<i64>> {
        if matches!(self.peer.completion, crate::peer::CompletionQuery::Done(_)) {
            return Ok(None);
        }
        let mut connection = self.cluster.connect(&self.database).await?;
        let number = left(&mut connection, self.peer, 0).await?;
        connection.close().await?;
        Ok(Some(number))
    }

    /// Fills a queue before a drain.
    async fn fill(&self, count: u64, bytes: usize, delay: u64) -> Result<(Done, String)> {
        let request = Request {
            bytes,
            delay,
            ..Request::new("bulk", count)
        };
        self.enqueue(&request).await
    }

    /// Runs workers in this many processes.
    async fn work(&self, request: &Request, processes: usize, until: Until) -> Result<DrainResult> {
        let url = self.cluster.url(&self.database);
        let workers = WorkerGroup::start(self.peer, self.program, &url, request, processes).await?;
        workers
            .drain(
                self.cluster,
                self.peer,
                &self.database,
                request.count,
                until,
            )
            .await
    }

    async fn meter(&self) -> Result<Meter> {
        self.cluster.meter(&self.database).await
    }
}
