//! The five services at work, each the same: requests go in over HTTP, spread over time; what the outside world has seen
//! is told at a glance while it runs, and as a witness at the end.

pub mod evidence;
pub mod exports;
pub mod orders;
pub mod payments;
pub mod protocols;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider::dead_letter::{DeadLetter, DeadLetters, Filter};
use sqlx::{PgPool, types::time::OffsetDateTime};
use tokio::{
    sync::RwLock,
    time::{Interval, interval, timeout},
};

use super::{checker::Witness, door::Door, holding::service_of, parties::Parties};
use crate::{
    exit::{Exit, Failure},
    services,
};

/// So long the database may take to answer a look; longer, and it counts as away.
const LOOK: Duration = Duration::from_secs(1);

/// More dead letters than the demo ever makes.
const MOST_DEAD: u32 = 1_000;

/// What every act needs.
pub struct Run {
    /// Sets this run apart from others in the same directory.
    pub name: String,
    /// When it began, by the database's clock.
    pub since: OffsetDateTime,
    /// For how long requests come in.
    pub span: Duration,
    /// Where requests go in.
    pub door: Door,
    /// The outside world.
    pub parties: Arc<Parties>,
    /// The database, to look at.
    pub pool: PgPool,
    /// The directory of the store.
    pub store: PathBuf,
    /// Held for writing while the database is away: a request without a key is not made then, for if its answer were
    /// lost nobody could say whether it was accepted.
    pub calm: RwLock<()>,
}

impl Run {
    /// So many things at this rate.
    fn planned(&self, a_second: u64) -> u64 {
        (self.span.as_secs() * a_second).max(1)
    }

    /// Ticks that spread so many things over the time there is.
    fn pace(&self, things: u64) -> Interval {
        let gap = self.span.as_secs_f64() / things.max(1) as f64;
        interval(Duration::from_secs_f64(gap.max(0.001)))
    }

    /// The dead letters of this run.
    pub async fn dead(&self) -> Result<Vec<DeadLetter>, Failure> {
        let failed =
            |e: postrider::Error| Failure::caused(Exit::Failed, "dead letters can't be listed", &e);
        let filter = Filter {
            since: Some(self.since),
            ..Filter::default()
        };
        let letters = DeadLetters::new(services::work_tables()).map_err(failed)?;
        let list = letters.list(&self.pool, &filter, None, MOST_DEAD);
        list.await.map_err(failed)
    }
}

/// What was accepted, each with what is expected of it.
struct Accepted<T>(Mutex<BTreeMap<String, T>>);

impl<T: Clone> Accepted<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn note(&self, item: impl Into<String>, expected: T) {
        let mut items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        items.insert(item.into(), expected);
    }

    fn all(&self) -> BTreeMap<String, T> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn len(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

/// How far a service is.
#[derive(Debug, Clone)]
pub struct Glance {
    /// Its name.
    pub name: &'static str,
    /// So many will be asked for.
    pub planned: u64,
    /// Accepted so far.
    pub accepted: u64,
    /// Done so far, as the outside world has it.
    pub done: u64,
    /// Needed more than one attempt so far.
    pub retried: u64,
    /// Dead now.
    pub dead: u64,
    /// Can't be done before somebody has mended something.
    pub blocked: u64,
}

/// All five.
pub struct Acts {
    run: Arc<Run>,
    /// The dead letters of the last look, by service: shown while the database is away.
    dead: Mutex<Vec<&'static str>>,
    /// Files made of inputs.
    pub exports: exports::Exports,
    /// Orders sent to a broker.
    pub orders: orders::Orders,
    /// Payments deducted from a wallet.
    pub payments: payments::Payments,
    /// Files attached to cases.
    pub evidence: evidence::Evidence,
    /// Documents through a pipeline.
    pub protocols: protocols::Protocols,
}

impl Acts {
    /// Everything is ready to begin.
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

    /// Every request of every service, at the same time.
    pub async fn ask(&self) -> Result<(), Failure> {
        tokio::try_join!(
            self.exports.ask(),
            self.orders.ask(),
            self.payments.ask(),
            self.evidence.ask(),
            self.protocols.ask(),
        )?;
        Ok(())
    }

    /// How far each is. While the database is away, what it alone knows is what was last seen.
    pub async fn glances(&self) -> [Glance; 5] {
        let mut glances = [
            self.exports.glance().await,
            self.orders.glance(),
            self.payments.glance(),
            self.evidence.glance(),
            self.protocols.glance(),
        ];
        let looked = timeout(LOOK, self.run.dead()).await;
        let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(Ok(letters)) = looked {
            *dead = letters.iter().map(service).collect();
        }
        for glance in &mut glances {
            glance.dead = dead.iter().filter(|name| **name == glance.name).count() as u64;
        }
        glances
    }

    /// What the outside world has seen of each.
    pub async fn witnesses(&self) -> Result<[Witness; 5], Failure> {
        let mut witnesses = [
            self.exports.witness().await?,
            self.orders.witness(),
            self.payments.witness().await?,
            self.evidence.witness(),
            self.protocols.witness().await?,
        ];
        let dead = self.run.dead().await?;
        for witness in &mut witnesses {
            let same = |letter: &&DeadLetter| service(letter) == witness.service;
            witness.still_dead = dead.iter().filter(same).count();
        }
        Ok(witnesses)
    }
}

/// To which service a dead letter belongs.
pub fn service(letter: &DeadLetter) -> &'static str {
    service_of(&letter.work_table, &letter.kind)
}

fn names<T>(accepted: &BTreeMap<String, T>) -> BTreeSet<String> {
    accepted.keys().cloned().collect()
}
