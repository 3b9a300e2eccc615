//! The program `postrider`: configuration, command line, HTTP shell, roles, and the database it all stands on.
//!
//! Gauge order: [`cli`] (what can be asked of it), [`config`], [`database`], [`services`] (what it is made of),
//! [`http`], then the commands.

pub mod alerts;
pub mod cli;
pub mod config;
pub mod console;
pub mod database;
pub mod exit;
pub mod http;
pub mod logging;
pub mod observe;
pub mod operate;
pub mod roles;
pub mod services;

/// The console's own schema: who is logged in.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!("console", ["0001_sessions"])
}
