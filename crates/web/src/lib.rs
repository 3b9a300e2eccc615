//! Shared HTTP building blocks of Postrider's services.
//!
//! The promises, one per module:
//!
//! - every error response is a [`Problem`]: a stable code, a page that explains it, and the request's id ([`error_code`],
//!   [`problem`]);
//! - JSON that PostgreSQL can't store, or that two parsers would read differently, is rejected with the position ([`json`]);
//!   so are invalid parameters ([`params`]);
//! - a caller needs the scope that a route requires ([`auth`]);
//! - every request ends in time, is logged and counted once ([`time_limit`](mod@time_limit), [`observe`]), and a panic becomes a 500;
//! - all lists are paged the same way ([`paging`]);
//! - what the program knows about a service comes from one description ([`service`]);
//! - calls to external APIs have a timeout and say what is known when they fail ([`http_client`]).
//!
//! A service uses the extractors, [`Problem`] and [`require`] in its `http` module; the program wraps the joined
//! router once with [`with_middleware`]. Read `problem.rs`, `json/mod.rs` and `auth/mod.rs` first, then `middleware.rs`, which
//! explains the order of the layers.

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
pub use middleware::{MiddlewareOptions, with_middleware};
pub use paging::{Cursor, Limit, Page, list_id};
pub use params::{Path, Query};
pub use problem::{FieldError, Problem, ProblemDetails, ProblemPage};
pub use request_id::RequestId;
pub use time_limit::time_limit;
