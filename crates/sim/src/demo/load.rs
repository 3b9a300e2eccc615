//! The load on the five services. Each submits requests over HTTP, spread over time, reports its progress while it runs,
//! and collects the evidence for the checker at the end.

pub mod evidence;
pub mod exports;
pub mod orders;
pub mod payments;
pub mod protocols;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider::{
    dead_letter::{DeadLetter, DeadLetters, Filter},
    lease::WorkTable,
};
use sqlx::{PgPool, types::time::OffsetDateTime};
use tokio::{
    sync::RwLock,
    time::{Interval, interval, timeout},
};

use super::{Error, checker::Evidence, client::ApiClient, leases::service_of, parties::Parties};
use crate::lock;

/// The timeout of a query for progress; a database that takes longer counts as unavailable.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// More dead letters than the demo ever produces.
const MAX_DEAD_LETTERS: u32 = 1_000;

/// What the load of every service needs.
pub struct Run {
    /// Distinguishes this run from others in the same directory.
    pub name: String,
    /// When it began, by the database's clock.
    pub since: OffsetDateTime,
    /// How long requests come in.
    pub duration: Duration,
    /// The client that submits requests.
    pub client: ApiClient,
    /// The simulated outside parties.
    pub parties: Arc<Parties>,
    /// The database, read only.
    pub pool: PgPool,
    /// Every work table of the program.
    pub work_tables: Vec<&'static WorkTable>,
    /// The directory of the object store.
    pub store: PathBuf,
    /// Held for writing while the database is down. Requests without a key wait for it: if their answer were lost, nobody
    /// could tell whether they were accepted.
    pub outage: RwLock<()>,
}

impl Run {
    /// The number of items at this rate.
    fn planned(&self, per_second: u64) -> u64 {
        (self.duration.as_secs() * per_second).max(1)
    }

    /// Ticks that spread this number of requests over the duration of the load.
    fn pace(&self, requests: u64) -> Interval {
        let gap = self.duration.as_secs_f64() / requests.max(1) as f64;
        interval(Duration::from_secs_f64(gap.max(0.001)))
    }

    /// The dead letters of this run.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, Error> {
        let failed = |e: postrider::Error| Error::caused("can't list dead letters", &e);
        let filter = Filter {
            since: Some(self.since),
            ..Filter::default()
        };
        let letters = DeadLetters::new(self.work_tables.iter().copied()).map_err(failed)?;
        let list = letters.list(&self.pool, &filter, None, MAX_DEAD_LETTERS);
        list.await.map_err(failed)
    }
}

/// The accepted items, each with what is expected of it.
struct Accepted<T>(Mutex<BTreeMap<String, T>>);

impl<T: Clone> Accepted<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn insert(&self, item: impl Into<String>, expected: T) {
        lock(&self.0).insert(item.into(), expected);
    }

    fn all(&self) -> BTreeMap<String, T> {
        lock(&self.0).clone()
    }

    fn len(&self) -> u64 {
        lock(&self.0).len() as u64
    }
}

/// How far a service is.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The service.
    pub service: &'static str,
    /// The number of items that the demo submits.
    pub planned: u64,
    /// Accepted so far.
    pub accepted: u64,
    /// Done so far, as the outside party recorded it.
    pub done: u64,
    /// Needed more than one attempt so far.
    pub retried: u64,
    /// Dead letters now.
    pub dead: u64,
    /// The number of items that can't succeed before a cause is fixed.
    pub blocked: u64,
}

/// The load on all five services.
pub struct Load {
    run: Arc<Run>,
    /// The services of the last known dead letters: shown while the database is down.
    dead: Mutex<Vec<&'static str>>,
    /// Files built from inputs.
    pub exports: exports::Exports,
    /// Orders sent to a broker.
    pub orders: orders::Orders,
    /// Payments deducted from a wallet.
    pub payments: payments::Payments,
    /// Files attached to cases.
    pub evidence: evidence::Evidence,
    /// Documents processed by a pipeline.
    pub protocols: protocols::Protocols,
}

impl Load {
    /// The load of this run.
    pub fn new(run: &Arc<Run>) -> Self {
        Self {
            run: Arc::clone(run),
            dead: Mutex::default(),
            exports: exports::Exports::new(Arc::clone(run)),
            orders: orders::Orders::new(Arc::clone(run)),
            payments: payments::Payments::new(Arc::clone(run)),
            evidence: evidence::Evidence::new(Arc::clone(run)),
            protocols: protocols::Protocols::new(Arc::clone(run)),
        }
    }

    /// Submits every request of every service, concurrently.
    pub async fn submit(&self) -> Result<(), Error> {
        tokio::try_join!(
            self.exports.submit(),
            self.orders.submit(),
            self.payments.submit(),
            self.evidence.submit(),
            self.protocols.submit(),
        )?;
        Ok(())
    }

    /// How far each service is. While the database is down, figures from it are the last known ones.
    pub async fn progress(&self) -> [Progress; 5] {
        let mut all = [
            self.exports.progress().await,
            self.orders.progress(),
            self.payments.progress(),
            self.evidence.progress(),
            self.protocols.progress(),
        ];
        let letters = timeout(QUERY_TIMEOUT, self.run.dead_letters()).await;
        let mut dead = lock(&self.dead);
        if let Ok(Ok(letters)) = letters {
            *dead = letters.iter().map(service).collect();
        }
        for progress in &mut all {
            let own = dead.iter().filter(|name| **name == progress.service);
            progress.dead = own.count() as u64;
        }
        all
    }

    /// What the outside parties recorded of each service.
    pub async fn evidence(&self) -> Result<[Evidence; 5], Error> {
        let mut all = [
            self.exports.evidence().await?,
            self.orders.evidence(),
            self.payments.evidence().await?,
            self.evidence.evidence(),
            self.protocols.evidence().await?,
        ];
        let dead = self.run.dead_letters().await?;
        for evidence in &mut all {
            let own = |letter: &&DeadLetter| service(letter) == evidence.service;
            evidence.still_dead = dead.iter().filter(own).count();
        }
        Ok(all)
    }
}

/// The service that a dead letter belongs to.
pub fn service(letter: &DeadLetter) -> &'static str {
    service_of(&letter.work_table, &letter.kind)
}

fn keys<T>(accepted: &BTreeMap<String, T>) -> BTreeSet<String> {
    accepted.keys().cloned().collect()
}
