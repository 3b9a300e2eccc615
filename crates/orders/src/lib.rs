//! orders: an order accepted once, sent surely.
//!
//! A client posts an order under an idempotency key. The promise: one key is one order at the trading broker, however
//! often it is posted and whatever crashes; an order that can't be sent is visible and never sent late.

/// The slice's own schema, `orders`.
#[must_use]
pub const fn migrations() -> postrider_engine::migrate::MigrationSet {
    postrider_engine::migration_set!("orders", [])
}
