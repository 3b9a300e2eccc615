//! The services that the program runs, one line each.
//!
//! What the program knows about a service comes from the description that its crate exports
//! ([`postrider_web::service`]): schema, error codes, work tables, checks, gauges, states, actions, timeline and
//! routes. A module here starts it: it maps the configuration to the service's API and background tasks. To add a
//! service, see `docs/adding-a-service.md`.

mod evidence;
mod exports;
mod orders;
pub mod payments;
mod protocols;

use axum::extract::FromRef;
use postrider::{
    dead_letter::DeadLetters, lease::WorkTable, migrate::Migrator, outbox::OUTBOX,
    transport::DELIVERIES,
};
use postrider_blob::Store;
use postrider_inspect::doctor::Doctor;
use postrider_web::service::{Service, ServiceDescription};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use crate::{
    config::Config,
    exit::Failure,
    http::State,
    roles::{Resources, Task},
};

/// Declares [`Apis`] and [`ALL`] from one line per service: the module that starts it, its API type and its crate.
macro_rules! services {
    ($($module:ident: $api:ident in $krate:ident;)*) => {
        /// A running API of each service; part of the HTTP server's state.
        #[derive(Clone)]
        pub struct Apis {
            $(
                #[doc = concat!("The API of ", stringify!($module), ".")]
                pub $module: $krate::$api,
            )*
        }

        impl Apis {
            /// Starts every API. Call it inside a tokio runtime.
            pub fn start(start: &Start<'_>) -> Result<Self, Failure> {
                Ok(Self { $($module: $module::start(start)?,)* })
            }

            /// Every running service.
            pub fn all(&self) -> impl Iterator<Item = &dyn Service> {
                [$(&self.$module as &dyn Service,)*].into_iter()
            }
        }

        $(
            impl FromRef<State> for $krate::$api {
                fn from_ref(state: &State) -> Self {
                    state.apis.$module.clone()
                }
            }
        )*

        /// Every service, in the order in which the console shows them.
        static ALL: &[(&ServiceDescription, StartTasks)] =
            &[$((&$krate::DESCRIPTION, $module::tasks),)*];

        /// The routes of each service.
        pub fn routers() -> impl Iterator<Item = OpenApiRouter<State>> {
            [$($krate::routes(),)*].into_iter()
        }
    };
}

services! {
    orders: Orders in postrider_orders;
    payments: Payments in postrider_payments;
    exports: Exports in postrider_exports;
    evidence: Evidence in postrider_evidence;
    protocols: Protocols in postrider_protocols;
}

/// What an API is started with.
pub struct Start<'a> {
    /// The database.
    pub pool: &'a PgPool,
    /// The object store.
    pub store: &'a Store,
    /// The configuration.
    pub config: &'a Config,
    /// Ends responses that have no end of their own.
    pub stop: &'a CancellationToken,
}

/// Creates the background tasks of a service.
type StartTasks = fn(&Resources, &Config) -> Result<Vec<Task>, Failure>;

impl Apis {
    /// The service with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&dyn Service> {
        self.all()
            .find(|service| service.description().name == name)
    }
}

/// Every service's description.
pub fn descriptions() -> impl Iterator<Item = &'static ServiceDescription> {
    ALL.iter().map(|(description, _)| *description)
}

/// The background tasks of every service.
pub fn tasks(resources: &Resources, config: &Config) -> Result<Vec<Task>, Failure> {
    let mut tasks = Vec::new();
    for (_, start) in ALL {
        tasks.extend(start(resources, config)?);
    }
    Ok(tasks)
}

/// Brings every schema up to date, the library's first.
#[must_use]
pub fn migrator() -> Migrator {
    let sets = std::iter::once(postrider::migrations())
        .chain(descriptions().flat_map(|service| (service.migrations)()))
        .chain([crate::migrations()]);
    Migrator::new(sets).program_version(env!("CARGO_PKG_VERSION"))
}

/// The name that operators see for work that belongs to no service: messages between services.
pub const MESSAGES: &str = "messages";

/// Every service's name with the names of its work tables; the library's own tables first.
pub fn named_tables() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let own = descriptions().map(|service| {
        let tables = service.tables.iter().map(|table| table.name).collect();
        (service.name, tables)
    });
    std::iter::once((MESSAGES, vec![OUTBOX.name, DELIVERIES.name])).chain(own)
}

/// The name of the service that a work table belongs to.
#[must_use]
pub fn service_of_table(table: &str) -> &'static str {
    named_tables()
        .find(|(_, tables)| tables.contains(&table))
        .map_or(MESSAGES, |(name, _)| name)
}

/// Dead letters of all work tables, including those of a wallet that has its own database.
pub fn dead_letters(wallet: Option<PgPool>) -> postrider::Result<DeadLetters> {
    let guards = descriptions().flat_map(|service| service.redrive_guards);
    let letters = guards.fold(
        DeadLetters::new(work_tables())?,
        |letters, (table, function)| letters.guard(table, function),
    );
    Ok(match wallet {
        Some(pool) => letters.with_remote(postrider_payments::WALLET_OUTBOX.name, pool),
        None => letters,
    })
}

/// Every work table.
pub fn work_tables() -> impl Iterator<Item = &'static WorkTable> {
    let own = descriptions().flat_map(|service| service.tables.iter().copied());
    [&OUTBOX, &DELIVERIES].into_iter().chain(own)
}

/// Examines every work table and every service's own invariants.
#[must_use]
pub fn doctor() -> Doctor {
    let checks = descriptions().flat_map(|service| service.checks.iter().copied());
    let parked = descriptions().flat_map(|service| service.parked_reasons.iter().copied());
    Doctor::new(work_tables())
        .checks(checks)
        .parked_reasons(parked)
        .migrator(migrator())
}
