//! What the program is made of: the engine and the five services, listed once.

use postrider_engine::doctor::Doctor;
use postrider_engine::migrate::Migrator;
use postrider_engine::outbox::OUTBOX;
use postrider_engine::transport::DELIVERIES;

/// Brings every schema up to date, the engine's first.
#[must_use]
pub fn migrator() -> Migrator {
    Migrator::new([
        postrider_engine::migrations(),
        postrider_exports::migrations(),
        postrider_orders::migrations(),
        postrider_payments::migrations(),
        postrider_evidence::migrations(),
        postrider_protocols::migrations(),
    ])
    .program_version(env!("CARGO_PKG_VERSION"))
}

/// Examines every work table and the invariants that each service brings.
#[must_use]
pub fn doctor() -> Doctor {
    Doctor::new([&OUTBOX, &DELIVERIES]).migrator(migrator())
}
