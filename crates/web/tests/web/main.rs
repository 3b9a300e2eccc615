//! The middleware and its parts, tested request by request without a socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod auth;
mod database;
mod engine;
mod error_pages;
mod http_client;
mod json;
mod json_properties;
mod limits;
mod loopback;
mod middleware;
mod observe;
mod openapi;
mod pages;
mod paging;
mod params;
mod problem;
mod support;
