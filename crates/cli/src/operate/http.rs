//! The API for operators. To see needs the scope `read`, to act `operate`.

mod dead;

use axum::extract::{FromRef, State};
use postrider_web::{Json, Path, Problem, Scope, error_code::codes::INVALID_VALUE, require};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Operate, dead::Refused, overview::Overview, trace::TimelineView};
use crate::http;

/// The error codes of this API.
pub mod codes {
    postrider_web::error_codes! {
        /// A filter that can't be read.
        INVALID_FILTER = "invalid-filter", BAD_REQUEST, "The filter cannot be read";
        /// No such item.
        ITEM_NOT_FOUND = "item-not-found", NOT_FOUND, "No such item of work";
        /// An id that nobody knows.
        TRACE_NOT_FOUND = "trace-not-found", NOT_FOUND, "Nothing is known under this id";
        /// No such order over dead letters.
        OPERATION_NOT_FOUND = "operation-not-found", NOT_FOUND, "No such operation";
    }
}

impl FromRef<http::State> for Operate {
    fn from_ref(state: &http::State) -> Self {
        state.operate.clone()
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Filter(unreadable) => Self::new(
                &codes::INVALID_FILTER,
                format!("The filter was refused: {unreadable}."),
            )
            .field("filter", unreadable.to_string()),
            Refused::Value { field, problem } => Self::new(
                &INVALID_VALUE,
                format!("The value of `{field}` was refused: {problem}."),
            )
            .field(field, problem),
            Refused::Engine(error) => error.into(),
        }
    }
}

/// The routes.
pub fn routes() -> OpenApiRouter<http::State> {
    let read = OpenApiRouter::new()
        .routes(routes!(overview))
        .routes(routes!(trace))
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

/// How everything is.
///
/// What waits, what was done in the last quarter of an hour, what was given up, and who is at work, for all processes on
/// this database. The answer may be a second old; counts end at 10,000 and say so.
#[utoipa::path(get, path = "/overview", tag = "operations", security(("bearer" = ["read"])), responses(
    (status = 200, description = "each service, breakers, leaders, workers", body = Overview),
))]
async fn overview(State(operate): State<Operate>) -> Result<Json<Overview>, Problem> {
    let overview = operate.overview().await?;
    Ok(Json((*overview).clone()))
}

/// Everything that is known under an id, oldest first.
///
/// The id or key of an order, a payment, an export job or input, a file job, row, artifact or notification, a protocol, a
/// message, a W3C trace id, or an item of work as `table/number`.
#[utoipa::path(get, path = "/traces/{id}", tag = "operations", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "any id or key"),
), responses(
    (status = 200, description = "what it is, and what happened to it", body = TimelineView),
    (status = 404, description = "nothing is known under this id"),
))]
async fn trace(
    State(operate): State<Operate>,
    Path(id): Path<String>,
) -> Result<Json<TimelineView>, Problem> {
    let timeline = operate.trace(&id).await?;
    timeline.map(Json).ok_or_else(|| {
        Problem::new(
            &codes::TRACE_NOT_FOUND,
            "Nothing is known under this id: it was never given, is misspelt, or its retention is over.",
        )
    })
}
