//! What is measured. Each scenario runs in rounds, and in each round everybody takes a turn, so
//! that a machine that gets slower or faster does so for all.

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

use crate::adapter::{Adapter, Done, Order};
use crate::cluster::{Cluster, Meter};
use crate::drain::{Crew, Drained, Until, left};
use crate::install::Program;
use crate::peer::Peer;
use crate::plan::{Plan, say};
use crate::results::Results;

/// Everything that the scenarios share.
#[derive(Debug)]
pub struct Bench {
    cluster: Cluster,
    peers: Vec<(Peer, Program)>,
    plan: Plan,
    results: Results,
}

/// One turn: a peer on a database of its own.
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

    /// Gives back what was lent.
    pub fn finish(self) -> (Cluster, Results) {
        (self.cluster, self.results)
    }

    /// All scenarios that the plan wants.
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

    /// Sets each peer up once; each turn gets a copy.
    async fn templates(&mut self) -> Result<()> {
        let mut able = Vec::new();
        for (peer, program) in std::mem::take(&mut self.peers) {
            let template = template(&peer);
            self.cluster.fresh(&template, None).await?;
            let url = self.cluster.url(&template);
            match Adapter::setup(peer.name, &program, &url).await {
                Ok(()) => able.push((peer, program)),
                Err(error) => {
                    say(&format!("{error:#}"));
                    self.results.absent(peer.name, &format!("{error:#}"));
                }
            }
        }
        self.peers = able;
        Ok(())
    }

    /// Those who take part in a long scenario.
    fn long(&self) -> Vec<(Peer, Program)> {
        let chosen = |(peer, _): &&(Peer, Program)| peer.long || !self.plan.everybody;
        self.peers.iter().filter(chosen).cloned().collect()
    }

    /// Gives a peer a turn. What goes wrong is noted for it and stops nobody else.
    async fn turn<T>(
        &mut self,
        measure: &str,
        (peer, program): &(Peer, Program),
        run: impl AsyncFnOnce(Turn<'_>) -> Result<T>,
    ) -> Option<T> {
        say(&format!("{measure}: {}", peer.name));
        let database = format!("run_{}", peer.name.replace('-', "_"));
        let outcome = match self.cluster.fresh(&database, Some(&template(peer))).await {
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
        if let Err(error) = self.cluster.drop(&database).await {
            say(&format!("{measure}: cannot drop {database}: {error:#}"));
        }
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                say(&format!("{measure}: {}: {error:#}", peer.name));
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
    /// Runs an enqueuing order and checks that the database has so many more items.
    async fn enqueue(&self, order: &Order) -> Result<(Done, String)> {
        let before = self.left().await?;
        let url = self.cluster.url(&self.database);
        let mut adapter = Adapter::start(self.peer.name, self.program, &url, order).await?;
        let settings = adapter.settings.clone();
        adapter.tell().await?;
        let done = adapter.done().await?;
        // A peer that counts what is done, and not what is left, cannot be asked here: its drain tells.
        if let Some(before) = before {
            let after = self.left().await?.context("still countable")?;
            let added = u64::try_from(after - before).unwrap_or(0);
            ensure!(
                added == order.count,
                "{} was given {} items, and {added} are there",
                self.peer.name,
                order.count
            );
        }
        Ok((done, settings))
    }

    /// Unfinished items, where the database can tell without knowing how many there were.
    async fn left(&self) -> Result<Option<i64>> {
        if matches!(self.peer.books, crate::peer::Books::Done(_)) {
            return Ok(None);
        }
        let mut connection = self.cluster.connect(&self.database).await?;
        let number = left(&mut connection, self.peer, 0).await?;
        connection.close().await?;
        Ok(Some(number))
    }

    /// Loads a queue before a drain.
    async fn fill(&self, count: u64, bytes: usize, delay: u64) -> Result<(Done, String)> {
        let order = Order {
            bytes,
            delay,
            ..Order::new("bulk", count)
        };
        self.enqueue(&order).await
    }

    /// Lets so many processes work.
    async fn work(&self, order: &Order, processes: usize, until: Until) -> Result<Drained> {
        let url = self.cluster.url(&self.database);
        let crew = Crew::hire(self.peer, self.program, &url, order, processes).await?;
        crew.drain(self.cluster, self.peer, &self.database, order.count, until)
            .await
    }

    async fn meter(&self) -> Result<Meter> {
        self.cluster.meter(&self.database).await
    }
}
