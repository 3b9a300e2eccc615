//! The operators' API. Reading needs the scope `read`, changing `operate`.

mod dead;

use axum::extract::{FromRef, State};
use postrider_web::{Json, Path, Problem, Scope, error_code::codes::INVALID_VALUE, require};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Operate, dead::OperateError, overview::Overview, timeline::TimelineView};
use crate::http;

/// The error codes of this API.
pub mod codes {
    postrider_web::error_codes! {
        /// The filter is invalid.
        INVALID_FILTER = "invalid-filter", BAD_REQUEST, "The filter is invalid";
        /// No such work item.
        ITEM_NOT_FOUND = "item-not-found", NOT_FOUND, "No such work item";
        /// No service knows this id.
        TRACE_NOT_FOUND = "trace-not-found", NOT_FOUND, "Nothing has this id";
        /// No such operation.
        OPERATION_NOT_FOUND = "operation-not-found", NOT_FOUND, "No such operation";
    }
}

impl FromRef<http::State> for Operate {
    fn from_ref(state: &http::State) -> Self {
        state.operate.clone()
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::Filter(invalid) => Self::new(
                &codes::INVALID_FILTER,
                format!("The filter is invalid: {invalid}."),
            )
            .field("filter", invalid.to_string()),
            OperateError::Value { field, problem } => Self::new(
                &INVALID_VALUE,
                format!("The value of {field} is invalid: it {problem}."),
            )
            .field(field, problem),
            OperateError::Library(error) => error.into(),
        }
    }
}

/// The routes.
pub fn routes() -> OpenApiRouter<http::State> {
    let read = OpenApiRouter::new()
        .routes(routes!(overview))
        .routes(routes!(timeline))
        .routes(routes!(dead::list))
        .routes(routes!(dead::groups))
        .routes(routes!(dead::item))
        .routes(routes!(dead::operations))
        .routes(routes!(dead::operation))
        .route_layer(require(Scope::Read));
    let operate = OpenApiRouter::new()
        .routes(routes!(dead::redrive))
        .routes(routes!(dead::archive))
        .routes(routes!(dead::stop))
        .route_layer(require(Scope::Operate));
    read.merge(operate)
}

/// Get the overview.
///
/// Queue depths, throughput of the last fifteen minutes, dead letters, breakers, leaders and workers of all processes on
/// this database. It may be a second old; counts are bounded at 10,000.
#[utoipa::path(get, path = "/overview", tag = "operations", security(("bearer" = ["read"])), responses(
    (status = 200, description = "each service, breakers, leaders, workers", body = Overview),
))]
async fn overview(State(operate): State<Operate>) -> Result<Json<Overview>, Problem> {
    let overview = operate.overview().await?;
    Ok(Json((*overview).clone()))
}

/// Get the timeline of an id, oldest event first.
///
/// The id or key of an order, a payment, an export job or input, a file job, row, artifact or notification, a protocol, a
/// message, a W3C trace id, or a work item as `table/number`.
#[utoipa::path(get, path = "/traces/{id}", tag = "operations", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "any id or key"),
), responses(
    (status = 200, description = "the items with this id, and their events", body = TimelineView),
    (status = 404, description = "nothing has this id"),
))]
async fn timeline(
    State(operate): State<Operate>,
    Path(id): Path<String>,
) -> Result<Json<TimelineView>, Problem> {
    let timeline = operate.timeline(&id).await?;
    timeline.map(Json).ok_or_else(|| {
        Problem::new(
            &codes::TRACE_NOT_FOUND,
            "Nothing has this id: it never existed, is misspelt, or is past its retention.",
        )
    })
}
