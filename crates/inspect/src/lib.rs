//! What operators' tools need to know about a Postrider database.
//!
//! Everything here reads the database and works in any process; only [`analyze`] changes something, the planner's
//! statistics. Reads are bounded: they cost about the same on a large table as on a small one.
//!
//! - [`gauges`]: depth, age, leases, workers, leaders and breakers as metrics.
//! - [`queue_stats`]: queue depth, throughput and live workers, for dashboards.
//! - [`timeline`]: what happened to an item or a message.
//! - [`doctor`]: diagnoses a live database and says what to do.
//! - [`analyze`]: keeps the planner's statistics in step with fast-growing tables.

pub mod analyze;
pub mod doctor;
pub mod gauges;
pub mod queue_stats;
pub mod timeline;
