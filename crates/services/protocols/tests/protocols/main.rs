//! The promises of the service, against a real PostgreSQL, real files and stage services with scripted failures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod archiving;
mod corrections;
mod crashes;
mod documents;
mod extraction;
mod outages;
mod pipeline;
mod reviewing;
mod support;
mod transitions;
mod uploading;
