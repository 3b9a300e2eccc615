//! The API: upload a protocol, see it, list them, retry, review.

mod page;
mod upload;

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{FromRef, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use postrider::{lease::Operator, wake::Waker};
use postrider_blob::{Error as StoreError, Key, Store};
use postrider_inspect::timeline::Timeline;
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, Scope,
    error_code::codes::INVALID_VALUE, list_id, require,
};
use serde::Deserialize;
use sqlx::PgPool;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    OUTBOX,
    accept::{self, NotAccepted, Upload},
    codes::{
        DOCUMENT_STORE_UNAVAILABLE, PROTOCOL_NOT_FOUND, PROTOCOL_NOT_RETRYABLE,
        PROTOCOL_NOT_REVIEWABLE,
    },
    counters,
    document::PDF,
    model::{Decision, ProtocolView, RetryQueued, ReviewRequest, Status, Summary, Uploaded},
    operate::{self, Refused},
    settings::Settings,
    store::{self, Stored},
    timeline,
};

/// The name of the listing in its cursors.
const LIST: &str = "protocols";

/// When to try again after the store was away.
const STORE_WAIT: Duration = Duration::from_secs(5);

/// The service behind the API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Protocols(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    store: Store,
    waker: Waker,
    max_size: usize,
    archive_after: Duration,
}

impl Protocols {
    /// Starts the service. Call it inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, store: Store, settings: &Settings) -> Self {
        counters::register();
        Self(Arc::new(Inner {
            waker: Waker::new(pool.clone()),
            pool,
            store,
            max_size: usize::try_from(settings.max_size.as_u64()).unwrap_or(usize::MAX),
            archive_after: settings.archive_after,
        }))
    }

    /// Accepts a document; returns when that is durable.
    pub async fn accept(&self, upload: Upload) -> Result<Uploaded, NotAccepted> {
        let uploaded = accept::accept(&self.0.pool, &self.0.store, upload).await?;
        self.0.waker.wake(&OUTBOX);
        Ok(uploaded)
    }

    /// What happened to the protocol with this id.
    pub async fn trail(&self, id: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::trail(&self.0.pool, id).await
    }

    /// What is known of a protocol. One that was given up long ago is archived by looking at it.
    pub async fn show(&self, id: Uuid) -> Result<Option<ProtocolView>, Refused> {
        Ok(self.stored(id).await?.map(ProtocolView::from))
    }

    async fn stored(&self, id: Uuid) -> Result<Option<Stored>, Refused> {
        let Inner {
            pool,
            archive_after,
            ..
        } = &*self.0;
        let stored = store::view(pool, id).await?;
        let dead = |stored: &Stored| stored.status == Status::DeadLetter;
        if stored.as_ref().is_some_and(dead) && operate::archive(pool, id, *archive_after).await? {
            return Ok(store::view(pool, id).await?);
        }
        Ok(stored)
    }

    /// The newest protocols first, older than the place `before`; each with its place.
    pub async fn list(
        &self,
        status: Option<Status>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<(i64, Summary)>, sqlx::Error> {
        store::list(&self.0.pool, status, before, limit).await
    }

    /// Lets a protocol that failed begin anew.
    pub async fn retry(&self, id: Uuid, operator: &Operator) -> Result<(), Refused> {
        operate::retry(&self.0.pool, id, operator).await?;
        self.0.waker.wake(&OUTBOX);
        Ok(())
    }

    /// Approves what was found, or sends it back; a rejection needs the operator's reason.
    pub async fn review(
        &self,
        id: Uuid,
        decision: Decision,
        operator: &Operator,
    ) -> Result<(), Refused> {
        operate::review(&self.0.pool, id, decision, operator).await?;
        self.0.waker.wake(&OUTBOX);
        Ok(())
    }
}

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
    /// Only those that stand so. Without it: all but the archived.
    status: Option<Status>,
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many protocols the page holds.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List protocols, the newest first.
///
/// Archived ones are left out unless `status=archived` asks for them.
#[utoipa::path(get, path = "/protocols", tag = "protocols", security(("bearer" = ["read"])), params(ListQuery), responses(
    (status = 200, description = "one page", body = Page<Summary>),
))]
async fn list_protocols(
    State(protocols): State<Protocols>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<Summary>>, Problem> {
    let list = list_id(LIST, &query.status)?;
    let before: Option<i64> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let limit = query.limit.rows_to_fetch();
    let rows = protocols.list(query.status, before, limit).await?;
    let page = Page::from_rows(rows, query.limit, &list, |(seq, _)| *seq)?;
    Ok(Json(page.map(|(_, summary)| summary)))
}

/// See a protocol: where it stands, what went wrong, what was found.
///
/// A dead letter that nobody touched for `protocols.archive_after` is archived by this.
#[utoipa::path(get, path = "/protocols/{id}", tag = "protocols", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "the protocol's id")
), responses(
    (status = 200, description = "what is known of it", body = ProtocolView),
    (status = 404, description = "no such protocol"),
))]
async fn get_protocol(
    State(protocols): State<Protocols>,
    Path(id): Path<String>,
) -> Result<Json<ProtocolView>, Problem> {
    let view = protocols.show(read_id(&id)?).await?;
    view.map(Json).ok_or_else(not_found)
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
    let id = read_id(&id)?;
    let stored = store::view(&protocols.0.pool, id).await?;
    let stored = stored.ok_or_else(not_found)?;
    let key = Key::parse(&stored.document_key).map_err(Problem::internal)?;
    let content = protocols
        .0
        .store
        .read(&key)
        .await
        .map_err(|e| store_failed(e, "read"))?;
    let pdf = stored.media_type == PDF;
    let (media, name) = if pdf {
        (PDF, format!("attachment; filename=\"{id}.pdf\""))
    } else {
        ("text/plain", format!("attachment; filename=\"{id}.txt\""))
    };
    let mut response = Response::new(Body::from_stream(content));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    let name = HeaderValue::try_from(name).map_err(Problem::internal)?;
    headers.insert(header::CONTENT_DISPOSITION, name);
    Ok(response)
}

/// Let a protocol that failed begin anew.
///
/// From `extraction_failed`, `grounding_failed` and `dead_letter`. What is left of the old try is called off.
#[utoipa::path(post, path = "/protocols/{id}/retry", tag = "protocols", security(("bearer" = ["operate"])), params(
    ("id" = String, Path, description = "the protocol's id")
), responses(
    (status = 200, description = "it begins anew", body = RetryQueued),
    (status = 400, description = "the protocol has not failed"),
    (status = 404, description = "no such protocol"),
))]
async fn retry_protocol(
    State(protocols): State<Protocols>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RetryQueued>, Problem> {
    let protocol_id = read_id(&id)?;
    let operator = Operator::new(caller.name());
    protocols.retry(protocol_id, &operator).await?;
    Ok(Json(RetryQueued {
        status: "retry_queued".to_owned(),
        protocol_id,
    }))
}

/// Approve what was found, or reject it with a reason.
///
/// Approved, the protocol is complete; rejected, it goes back to extraction.
#[utoipa::path(post, path = "/protocols/{id}/review", tag = "protocols", security(("bearer" = ["operate"])), params(
    ("id" = String, Path, description = "the protocol's id")
), request_body = ReviewRequest, responses(
    (status = 200, description = "reviewed", body = ProtocolView),
    (status = 404, description = "no such protocol"),
    (status = 409, description = "the protocol does not wait for a review"),
))]
async fn review_protocol(
    State(protocols): State<Protocols>,
    caller: Caller,
    Path(id): Path<String>,
    Json(request): Json<ReviewRequest>,
) -> Result<Json<ProtocolView>, Problem> {
    let id = read_id(&id)?;
    let mut operator = Operator::new(caller.name());
    operator.reason = request.reason;
    protocols.review(id, request.decision, &operator).await?;
    let view = protocols.show(id).await?;
    view.map(Json).ok_or_else(not_found)
}

/// What is no id is the id of no protocol.
fn read_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| not_found())
}

fn not_found() -> Problem {
    Problem::new(&PROTOCOL_NOT_FOUND, "No protocol has this id.")
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        match refused {
            Refused::Unknown => not_found(),
            Refused::NotRetryable(status) => {
                Self::new(&PROTOCOL_NOT_RETRYABLE, detail).with("status_now", status.as_str())
            }
            Refused::NotReviewable(status) => {
                Self::new(&PROTOCOL_NOT_REVIEWABLE, detail).with("status_now", status.as_str())
            }
            Refused::NoReason | Refused::LongReason => {
                Self::new(&INVALID_VALUE, format!("The review was refused: {detail}."))
                    .field("/reason", detail)
            }
            Refused::NotAllowed(error) => Self::internal(error),
            Refused::Engine(error) => error.into(),
        }
    }
}

fn store_failed(error: StoreError, verb: &str) -> Problem {
    Problem::new(
        &DOCUMENT_STORE_UNAVAILABLE,
        format!("The document can't be {verb} now: the object store failed. Try again."),
    )
    .retry_after(STORE_WAIT)
    .caused_by(error)
}

impl IntoResponse for Uploaded {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self)).into_response()
    }
}
