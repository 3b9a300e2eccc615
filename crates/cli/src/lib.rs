//! The program `postrider`: command line, configuration, roles, HTTP server, console and alerts.
//!
//! Reading order: [`cli`], [`config`], [`database`], [`services`], [`roles`], [`http`], [`operate`], [`console`].

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

/// Migrations of the schema `console`: login sessions.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!("console", ["0001_sessions"])
}
