//! Dead letters over HTTP.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use postrider::{dead_letter, dead_letter::Action, lease::Operator};
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, error_code::codes::INVALID_VALUE,
    list_id,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    super::{
        Operate,
        dead::{GroupView, ItemView, LetterView, OperationView, Preview, Request},
    },
    codes::{ITEM_NOT_FOUND, OPERATION_NOT_FOUND},
};

/// The names of the listings in their cursors.
const LETTERS: &str = "dead-letters";
const OPERATIONS: &str = "operations";

/// Maximum length of a reason, in bytes.
const MAX_REASON: usize = 2_000;

/// Which dead letters to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Filter, e.g. `service:orders code:TIMEOUT since:2h "connection refused"`.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    filter: String,
    /// Start of the page: `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List dead letters of all services, newest first.
///
/// The filter is one line of words, all of which must match: `service:`, `table:`, `kind:`, `code:`, `cause:`, `since:`,
/// `until:`, `id:` (with `table:`), and text that the message contains. Values with spaces go in double quotes.
#[utoipa::path(get, path = "/dead-letters", tag = "operations", security(("bearer" = ["read"])), params(ListQuery), responses(
    (status = 200, description = "one page", body = Page<LetterView>),
    (status = 400, description = "the filter is invalid"),
))]
pub(super) async fn list(
    State(operate): State<Operate>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<LetterView>>, Problem> {
    let list = list_id(LETTERS, &query.filter.trim())?;
    let after: Option<dead_letter::Cursor> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let select = u32::try_from(query.limit.rows_to_fetch()).unwrap_or(u32::MAX);
    let found = operate.dead(&query.filter, after.as_ref(), select).await?;
    Ok(Json(Page::from_rows(
        found,
        query.limit,
        &list,
        LetterView::cursor,
    )?))
}

/// Which dead letters to group.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct GroupsQuery {
    /// Filter, as in the listing.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    filter: String,
}

/// The groups of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Groups {
    /// Most frequent first; at most 500.
    items: Vec<GroupView>,
}

/// List dead letters by cause.
///
/// Failures that differ only in details are one group: numbers, ids and quoted values in their messages.
#[utoipa::path(get, path = "/dead-letters/groups", tag = "operations", security(("bearer" = ["read"])), params(GroupsQuery), responses(
    (status = 200, description = "most frequent causes first", body = Groups),
    (status = 400, description = "the filter is invalid"),
))]
pub(super) async fn groups(
    State(operate): State<Operate>,
    Query(query): Query<GroupsQuery>,
) -> Result<Json<Groups>, Problem> {
    let items = operate.dead_groups(&query.filter).await?;
    Ok(Json(Groups { items }))
}

/// Get one item: its row, payload, attempts and audit entries.
#[utoipa::path(get, path = "/dead-letters/{table}/{id}", tag = "operations", security(("bearer" = ["read"])), params(
    ("table" = String, Path, description = "the work table, e.g. orders.outbox_orders"),
    ("id" = i64, Path, description = "its id in that table"),
), responses(
    (status = 200, description = "the item; it need not be dead", body = ItemView),
    (status = 404, description = "no such item"),
))]
pub(super) async fn item(
    State(operate): State<Operate>,
    Path((table, id)): Path<(String, i64)>,
) -> Result<Json<ItemView>, Problem> {
    let found = operate.item(&table, id).await?;
    found.map(Json).ok_or_else(|| {
        Problem::new(
            &ITEM_NOT_FOUND,
            "There is no such row. Rows of done and archived items may have been deleted.",
        )
    })
}

/// A request to change dead letters.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct OperationRequest {
    /// Filter, as in the listing; empty only with `all`.
    #[schema(example = "service:payments code:TIMEOUT since:2h")]
    filter: String,
    /// Confirms that an empty filter means all dead letters.
    #[serde(default)]
    all: bool,
    /// Reason, for the audit log.
    #[serde(default)]
    reason: Option<String>,
    /// Maximum rate, per second; absent: unlimited.
    #[serde(default)]
    #[schema(minimum = 0.001, maximum = 1_000_000)]
    rate: Option<f64>,
    /// Maximum number of dead letters.
    #[serde(default)]
    #[schema(minimum = 1)]
    most: Option<i64>,
    /// Redrive orders that may be stale, too. Without it they are skipped.
    #[serde(default)]
    allow_stale: bool,
    /// Only report what would change.
    #[serde(default)]
    dry_run: bool,
}

/// Redrive dead letters: start them again with fresh attempts.
///
/// Later dead letters are not included. The operation is durable and survives this process; the response shows its
/// progress, as does `/dead-letters/operations/{id}`.
#[utoipa::path(post, path = "/dead-letters/redrive", tag = "operations", security(("bearer" = ["operate"])), request_body = OperationRequest, responses(
    (status = 202, description = "submitted; it runs in the background", body = OperationView),
    (status = 200, description = "with `dry_run`: what would change", body = Preview),
    (status = 400, description = "the filter is invalid"),
))]
pub(super) async fn redrive(
    State(operate): State<Operate>,
    caller: Caller,
    Json(request): Json<OperationRequest>,
) -> Result<Response, Problem> {
    act(&operate, &caller, Action::Redrive, request).await
}

/// Archive dead letters.
#[utoipa::path(post, path = "/dead-letters/archive", tag = "operations", security(("bearer" = ["operate"])), request_body = OperationRequest, responses(
    (status = 202, description = "submitted; it runs in the background", body = OperationView),
    (status = 200, description = "with `dry_run`: what would change", body = Preview),
    (status = 400, description = "the filter is invalid"),
))]
pub(super) async fn archive(
    State(operate): State<Operate>,
    caller: Caller,
    Json(request): Json<OperationRequest>,
) -> Result<Response, Problem> {
    act(&operate, &caller, Action::Archive, request).await
}

async fn act(
    operate: &Operate,
    caller: &Caller,
    action: Action,
    request: OperationRequest,
) -> Result<Response, Problem> {
    let length = request.reason.as_ref().map_or(0, String::len);
    if length > MAX_REASON {
        let problem = format!("must have at most {MAX_REASON} bytes");
        return Err(
            Problem::new(&INVALID_VALUE, format!("The reason {problem}."))
                .field("/reason", problem),
        );
    }
    if request.filter.trim().is_empty() && !request.all {
        let problem = "is empty; write a filter, or set all";
        return Err(Problem::new(
            &INVALID_VALUE,
            "The filter is empty; set all to true to select every dead letter.",
        )
        .field("/filter", problem));
    }
    let order = Request {
        filter: &request.filter,
        rate: request.rate,
        limit: request.most,
        allow_stale: request.allow_stale,
    };
    if request.dry_run {
        let preview = operate.preview_request(&order).await?;
        return Ok((StatusCode::OK, Json(preview)).into_response());
    }
    let operator = Operator {
        name: caller.name().to_owned(),
        reason: request.reason,
    };
    let submitted = operate.submit(action, &operator, &order).await?;
    Ok((StatusCode::ACCEPTED, Json(submitted)).into_response())
}

/// Which operations to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct OperationsQuery {
    /// Start of the page: `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List redrive and archive operations, newest first.
#[utoipa::path(get, path = "/dead-letters/operations", tag = "operations", security(("bearer" = ["read"])), params(OperationsQuery), responses(
    (status = 200, description = "one page", body = Page<OperationView>),
))]
pub(super) async fn operations(
    State(operate): State<Operate>,
    Query(query): Query<OperationsQuery>,
) -> Result<Json<Page<OperationView>>, Problem> {
    let before: Option<i64> = query
        .cursor
        .map(|cursor| cursor.decode(OPERATIONS))
        .transpose()?;
    let found = operate
        .operations(before, query.limit.rows_to_fetch())
        .await?;
    Ok(Json(Page::from_rows(
        found,
        query.limit,
        OPERATIONS,
        |operation| operation.id,
    )?))
}

/// Get a redrive or archive operation.
#[utoipa::path(get, path = "/dead-letters/operations/{id}", tag = "operations", security(("bearer" = ["read"])), params(
    ("id" = i64, Path, description = "its id"),
), responses(
    (status = 200, description = "the operation and its progress", body = OperationView),
    (status = 404, description = "no such operation"),
))]
pub(super) async fn operation(
    State(operate): State<Operate>,
    Path(id): Path<i64>,
) -> Result<Json<OperationView>, Problem> {
    operate.operation(id).await?.map(Json).ok_or_else(not_found)
}

/// Stop a redrive or archive operation; what it has changed stays changed.
#[utoipa::path(post, path = "/dead-letters/operations/{id}/stop", tag = "operations", security(("bearer" = ["operate"])), params(
    ("id" = i64, Path, description = "its id"),
), responses(
    (status = 200, description = "it has stopped, now or before", body = OperationView),
    (status = 404, description = "no such operation"),
))]
pub(super) async fn stop(
    State(operate): State<Operate>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Result<Json<OperationView>, Problem> {
    let operator = Operator::new(caller.name());
    operate
        .stop(&operator, id)
        .await?
        .map(Json)
        .ok_or_else(not_found)
}

fn not_found() -> Problem {
    Problem::new(
        &OPERATION_NOT_FOUND,
        "There is no operation with this id; `/dead-letters/operations` lists them.",
    )
}
