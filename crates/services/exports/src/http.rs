//! The HTTP API: submit, get, watch and list jobs, list inputs, download files, cancel, redrive.

mod commands;
mod job_body;
mod queries;

use axum::extract::FromRef;
use postrider_web::{Scope, body_limit, require};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::Exports;

/// Enough for the maximum number of inputs with the longest keys, and white space.
const MAX_REQUEST_SIZE: usize = 32 * 1024 * 1024;

/// The routes, for a program whose state contains [`Exports`].
pub fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Exports: FromRef<S>,
{
    let submit = OpenApiRouter::new()
        .routes(routes!(commands::post_job))
        .route_layer(body_limit(MAX_REQUEST_SIZE))
        .routes(routes!(commands::cancel_job))
        .route_layer(require(Scope::Submit));
    let read = OpenApiRouter::new()
        .routes(routes!(queries::list_jobs))
        .routes(routes!(queries::get_job))
        .routes(routes!(queries::list_inputs))
        .routes(routes!(queries::watch_job))
        .routes(routes!(queries::get_file))
        .route_layer(require(Scope::Read));
    let operate = OpenApiRouter::new()
        .routes(routes!(commands::redrive_job))
        .route_layer(require(Scope::Operate));
    submit.merge(read).merge(operate)
}
