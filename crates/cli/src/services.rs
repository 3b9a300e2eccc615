//! What the program is made of: the engine and the five services, listed once.
//!
//! A service brings its schema, its error codes, its work tables (for dead letters and the doctor), its own checks, its
//! routes, and the parts that run beside the HTTP server. Whoever adds one adds a line to [`ALL`], to [`Apis`] and to
//! [`routes`], and nothing else in the program.

mod evidence;
mod exports;
mod orders;
pub mod payments;
mod protocols;

use std::pin::Pin;

use postrider::{
    dead_letter::DeadLetters,
    doctor::{Check, Doctor},
    gauges::Gauge,
    lease::WorkTable,
    migrate::{MigrationSet, Migrator},
    outbox::OUTBOX,
    timeline::Trail,
    transport::DELIVERIES,
};
use postrider_blob::Store;
use postrider_web::ErrorCode;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use crate::{
    config::Config,
    exit::Failure,
    http::State,
    roles::{Resources, Role},
};

/// One service, as the rest of the program sees it.
pub struct Service {
    /// Its name, as operators know it.
    pub name: &'static str,
    /// Its schema.
    pub migrations: fn() -> MigrationSet,
    /// The error codes of its API.
    pub codes: &'static [ErrorCode],
    /// Where its work waits.
    pub tables: &'static [&'static WorkTable],
    /// Its own invariants.
    pub checks: &'static [Check],
    /// What it knows under an id or key of its own.
    pub trail: TimelineOf,
    /// What runs for it beside the HTTP server.
    pub parts: fn(&Resources, &Config) -> Result<Vec<Part>, Failure>,
    /// Makes its metrics appear, at zero.
    pub register: fn(),
    /// What its gauges and alerts look at.
    pub readings: for<'a> fn(&'a PgPool) -> Reads<'a>,
}

/// How a service is asked for the trail of an id.
pub type TimelineOf = for<'a> fn(&'a Apis, &'a str) -> Trails<'a>;

/// What a service answers: nothing, where it does not know the id.
pub type Trails<'a> = Pin<Box<dyn Future<Output = Result<Vec<Trail>, sqlx::Error>> + Send + 'a>>;

/// The trail of something that a UUID names; of anything else there is none.
fn by_uuid<'a, F>(id: &str, find: impl FnOnce(uuid::Uuid) -> F) -> Trails<'a>
where
    F: Future<Output = Result<Vec<Trail>, sqlx::Error>> + Send + 'a,
{
    match id.parse() {
        Ok(id) => Box::pin(find(id)),
        Err(_) => Box::pin(std::future::ready(Ok(Vec::new()))),
    }
}
/// Gauges that are being taken.
pub type Reads<'a> = Pin<Box<dyn Future<Output = Result<Vec<Gauge>, sqlx::Error>> + Send + 'a>>;

/// Work that runs from start to stop, in a process that has the role.
pub struct Part {
    /// For which role.
    pub role: Role,
    /// The work itself; it ends with the stop that the ground carries.
    pub work: Pin<Box<dyn Future<Output = postrider::Result<()>> + Send>>,
}

impl Part {
    /// Work of this role.
    pub fn new(
        role: Role,
        work: impl Future<Output = postrider::Result<()>> + Send + 'static,
    ) -> Self {
        Self {
            role,
            work: Box::pin(work),
        }
    }
}

/// Every service.
pub static ALL: [Service; 5] = [
    exports::SERVICE,
    orders::SERVICE,
    payments::SERVICE,
    evidence::SERVICE,
    protocols::SERVICE,
];

/// What the services' routes need; part of the HTTP server's state.
#[derive(Clone)]
pub struct Apis {
    /// Takes evidence in.
    pub evidence: postrider_evidence::Evidence,
    /// Accepts export jobs.
    pub exports: postrider_exports::Exports,
    /// Accepts orders.
    pub orders: postrider_orders::Orders,
    /// Accepts payments.
    pub payments: postrider_payments::Payments,
    /// Accepts protocols.
    pub protocols: postrider_protocols::Protocols,
}

impl Apis {
    /// Starts what the routes stand on; answers without an end of their own end with `stop`. Call it inside a tokio
    /// runtime.
    pub fn start(
        pool: &PgPool,
        store: &Store,
        config: &Config,
        stop: &CancellationToken,
    ) -> Result<Self, Failure> {
        Ok(Self {
            exports: postrider_exports::Exports::start(pool.clone(), store.clone(), stop.clone()),
            evidence: evidence::start(pool, store, config)?,
            orders: postrider_orders::Orders::start(pool.clone(), config.orders.ordering),
            payments: payments::start(pool, config)?,
            protocols: postrider_protocols::Protocols::start(
                pool.clone(),
                store.clone(),
                &config.protocols,
            ),
        })
    }
}

/// Every service's routes.
pub fn routes() -> OpenApiRouter<State> {
    postrider_exports::routes()
        .merge(postrider_orders::routes())
        .merge(postrider_payments::routes())
        .merge(postrider_evidence::routes())
        .merge(postrider_protocols::routes())
}

/// Brings every schema up to date, the engine's first.
#[must_use]
pub fn migrator() -> Migrator {
    let sets = std::iter::once(postrider::migrations())
        .chain(ALL.iter().map(|service| (service.migrations)()))
        .chain([postrider_payments::wallet_migrations(), crate::migrations()]);
    Migrator::new(sets).program_version(env!("CARGO_PKG_VERSION"))
}

/// What operators call the work that belongs to no service: messages on their way between them.
pub const MESSAGES: &str = "messages";

/// Every service's name with the names of its work tables; the engine's own tables first.
pub fn named_tables() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let own = ALL.iter().map(|service| {
        let tables = service.tables.iter().map(|table| table.name).collect();
        (service.name, tables)
    });
    std::iter::once((MESSAGES, vec![OUTBOX.name, DELIVERIES.name])).chain(own)
}

/// The name of the service that a work table belongs to.
#[must_use]
pub fn of_table(table: &str) -> &'static str {
    named_tables()
        .find(|(_, tables)| tables.contains(&table))
        .map_or(MESSAGES, |(name, _)| name)
}

/// The dead letters of all work tables, those of a wallet with a database of its own included. An order may be stale: it is
/// sent anew only by those who say that they know.
pub fn dead_letters(wallet: Option<PgPool>) -> postrider::Result<DeadLetters> {
    let letters = DeadLetters::new(work_tables())?.guard(
        postrider_orders::OUTBOX_ORDERS.name,
        postrider_orders::REOPEN,
    );
    Ok(match wallet {
        Some(pool) => letters.with_remote(postrider_payments::WALLET_OUTBOX.name, pool),
        None => letters,
    })
}

/// Every work table: where dead letters can be.
pub fn work_tables() -> impl Iterator<Item = &'static WorkTable> {
    let own = ALL
        .iter()
        .flat_map(|service| service.tables.iter().copied());
    [&OUTBOX, &DELIVERIES].into_iter().chain(own)
}

/// Examines every work table and the invariants that each service brings.
#[must_use]
pub fn doctor() -> Doctor {
    let checks = ALL
        .iter()
        .flat_map(|service| service.checks.iter().copied());
    Doctor::new(work_tables())
        .checks(checks)
        .at_rest(postrider_exports::AT_REST.iter().copied())
        .migrator(migrator())
}
