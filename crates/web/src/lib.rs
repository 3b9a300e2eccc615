//! What every HTTP part of Postrider shares.
//!
//! The promises, each kept by one module:
//!
//! - whatever goes wrong, the answer is a [`Problem`]: a stable code, a page that explains it, and
//!   the request's id ([`error_code`], [`problem`]);
//! - JSON that PostgreSQL cannot store, or that two readers would read differently, is refused and
//!   the answer says where ([`json`]); parameters likewise ([`params`]);
//! - nobody passes without the scope that a route asks for ([`auth`]);
//! - every request ends in time, leaves one line in the log and one mark in the metrics
//!   ([`time_limit`], [`observe`]), and a panic is an answer too;
//! - lists are paged the same way everywhere ([`paging`]);
//! - what the program knows about a service comes from one description ([`service`]);
//! - when we are the client, calls end in time and tell what is known of them ([`outside`]).
//!
//! A slice uses the extractors, [`Problem`] and [`require`](auth::require) in its `http.rs`; the
//! program wraps the joined router once with [`shell()`]. To read: `problem.rs`, `json/mod.rs`,
//! `auth/mod.rs`, then `shell.rs`, where the order of the layers is explained.

pub mod auth;
pub mod body;
mod compression;
mod database;
mod engine;
pub mod error_code;
mod fallback;
pub mod http_client;
pub mod json;
pub mod middleware;
pub mod observe;
pub mod openapi;
pub mod paging;
pub mod params;
pub mod problem;
pub mod request_id;
mod security_headers;
pub mod service;
pub mod text;
pub mod time_limit;

pub use auth::{Caller, Scope, Scopes, Token, Tokens, require};
pub use body::body_limit;
pub use error_code::{ErrorCatalogue, ErrorCode};
pub use json::Json;
pub use middleware::{MiddlewareOptions, shell};
pub use paging::{Cursor, Limit, Page, list_of};
pub use params::{Path, Query};
pub use problem::{FieldError, Problem, ProblemDetails, ProblemPage};
pub use request_id::RequestId;
pub use time_limit::time_limit;
