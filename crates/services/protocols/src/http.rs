//! The HTTP API: upload, get, list, retry and review protocols.

mod page;
mod upload;

use axum::{
    body::Body,
    extract::{FromRef, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use postrider::lease::Operator;
use postrider_web::{Caller, Cursor, Json, Limit, Page, Path, Problem, Query, Scope, require};
use serde::Deserialize;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    ProtocolError,
    document::Media,
    model::{ProtocolView, RetryQueued, ReviewRequest, Status, Summary, Uploaded},
    service::Protocols,
};

/// The routes, for a program whose state has [`Protocols`] in it.
pub fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Protocols: FromRef<S>,
{
    let submit = OpenApiRouter::new()
        .routes(routes!(upload::post_protocol))
        .route_layer(require(Scope::Submit));
    let read = OpenApiRouter::new()
        .routes(routes!(list_protocols))
        .routes(routes!(get_protocol))
        .routes(routes!(get_document))
        .routes(routes!(page::get_page))
        .route_layer(require(Scope::Read));
    let operate = OpenApiRouter::new()
        .routes(routes!(retry_protocol))
        .routes(routes!(review_protocol))
        .route_layer(require(Scope::Operate));
    submit.merge(read).merge(operate)
}

/// Which protocols to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Filter by status. Without it: all but the archived ones.
    status: Option<Status>,
    /// Where the page starts: `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of protocols on the page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List protocols, newest first.
///
/// Archived ones are listed only with `status=archived`.
#[utoipa::path(get, path = "/protocols", tag = "protocols", security(("bearer" = ["read"])), params(ListQuery), responses(
    (status = 200, description = "one page", body = Page<Summary>),
))]
async fn list_protocols(
    State(protocols): State<Protocols>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<Summary>>, Problem> {
    let cursor = query.cursor.as_ref();
    let page = protocols.list(query.status, cursor, query.limit).await?;
    Ok(Json(page))
}

/// Get a protocol: its state, its last failure, its criteria.
///
/// A dead letter that has not changed for `protocols.archive_after` is archived by this.
#[utoipa::path(get, path = "/protocols/{id}", tag = "protocols", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "the protocol's id")
), responses(
    (status = 200, description = "the protocol", body = ProtocolView),
    (status = 404, description = "no such protocol"),
))]
async fn get_protocol(
    State(protocols): State<Protocols>,
    Path(id): Path<String>,
) -> Result<Json<ProtocolView>, Problem> {
    get(&protocols, parse_id(&id)?).await.map(Json)
}

async fn get(protocols: &Protocols, id: Uuid) -> Result<ProtocolView, Problem> {
    let view = protocols.get(id).await?;
    view.ok_or_else(|| ProtocolError::NotFound.into())
}

/// Get a protocol's document as it was uploaded.
#[utoipa::path(get, path = "/protocols/{id}/document", tag = "protocols", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "the protocol's id")
), responses(
    (status = 200, description = "the document as it was uploaded", content((String = "text/plain"), (Vec<u8> = "application/pdf"))),
    (status = 404, description = "no such protocol"),
))]
async fn get_document(
    State(protocols): State<Protocols>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = parse_id(&id)?;
    let document = protocols.document(id).await?;
    let document = document.ok_or(ProtocolError::NotFound)?;
    let extension = match document.media {
        Media::Text => "txt",
        Media::Pdf => "pdf",
    };
    let disposition = format!("attachment; filename=\"{id}.{extension}\"");
    let disposition = HeaderValue::try_from(disposition).map_err(Problem::internal)?;
    let media = HeaderValue::from_static(document.media.as_str());
    let mut response = Response::new(Body::from_stream(document.content));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media);
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    Ok(response)
}

/// Retry a failed protocol from the start.
///
/// From `extraction_failed`, `grounding_failed` and `dead_letter`. Events of the previous try are cancelled.
#[utoipa::path(post, path = "/protocols/{id}/retry", tag = "protocols", security(("bearer" = ["operate"])), params(
    ("id" = String, Path, description = "the protocol's id")
), responses(
    (status = 200, description = "the next try is queued", body = RetryQueued),
    (status = 400, description = "the protocol has not failed"),
    (status = 404, description = "no such protocol"),
))]
async fn retry_protocol(
    State(protocols): State<Protocols>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RetryQueued>, Problem> {
    let protocol_id = parse_id(&id)?;
    let operator = Operator::new(caller.name());
    protocols.retry(protocol_id, &operator).await?;
    Ok(Json(RetryQueued {
        status: "retry_queued".to_owned(),
        protocol_id,
    }))
}

/// Approve the criteria, or reject them with a reason.
///
/// An approved protocol is complete; a rejected one goes back to extraction.
#[utoipa::path(post, path = "/protocols/{id}/review", tag = "protocols", security(("bearer" = ["operate"])), params(
    ("id" = String, Path, description = "the protocol's id")
), request_body = ReviewRequest, responses(
    (status = 200, description = "reviewed", body = ProtocolView),
    (status = 404, description = "no such protocol"),
    (status = 409, description = "the protocol is not pending review"),
))]
async fn review_protocol(
    State(protocols): State<Protocols>,
    caller: Caller,
    Path(id): Path<String>,
    Json(request): Json<ReviewRequest>,
) -> Result<Json<ProtocolView>, Problem> {
    let id = parse_id(&id)?;
    let mut operator = Operator::new(caller.name());
    operator.reason = request.reason;
    protocols.review(id, request.decision, &operator).await?;
    get(&protocols, id).await.map(Json)
}

/// A malformed id is the id of no protocol.
fn parse_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| ProtocolError::NotFound.into())
}

impl IntoResponse for Uploaded {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self)).into_response()
    }
}
