//! Dead letters over HTTP.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use postrider::{dead_letter, dead_letter::Action, lease::Operator};
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, error_code::codes::INVALID_VALUE,
    list_of,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    super::{
        Operate,
        dead::{GroupView, ItemView, LetterView, OperationView, Preview, Wish},
    },
    codes::{ITEM_NOT_FOUND, OPERATION_NOT_FOUND},
};

/// The names of the listings in their cursors.
const LETTERS: &str = "dead-letters";
const OPERATIONS: &str = "operations";

/// The longest reason.
const LONGEST_REASON: usize = 2_000;

/// Which dead letters to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Which are meant, e.g. `service:orders code:TIMEOUT since:2h "connection refused"`.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    filter: String,
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many the page holds.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List dead letters of all services, the newest first.
///
/// The filter is one line of words, all of which must fit: `service:`, `table:`, `kind:`, `code:`, `cause:`, `since:`,
/// `until:`, `id:` (with `table:`), and text that the message contains. Values with spaces go in double quotes.
#[utoipa::path(get, path = "/dead-letters", tag = "operations", security(("bearer" = ["read"])), params(ListQuery), responses(
    (status = 200, description = "one page", body = Page<LetterView>),
    (status = 400, description = "the filter can't be read"),
))]
pub(super) async fn list(
    State(operate): State<Operate>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<LetterView>>, Problem> {
    let list = list_of(LETTERS, &query.filter.trim())?;
    let after: Option<dead_letter::Cursor> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let select = u32::try_from(query.limit.to_select()).unwrap_or(u32::MAX);
    let found = operate.dead(&query.filter, after.as_ref(), select).await?;
    Ok(Json(Page::cut(
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
    /// Which are meant, as in the listing.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    filter: String,
}

/// The groups of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Groups {
    /// The most frequent first; at most 500.
    items: Vec<GroupView>,
}

/// Dead letters by cause.
///
/// Failures that differ only in their particulars are one group: numbers, ids and quoted values in their messages.
#[utoipa::path(get, path = "/dead-letters/groups", tag = "operations", security(("bearer" = ["read"])), params(GroupsQuery), responses(
    (status = 200, description = "the most frequent causes first", body = Groups),
    (status = 400, description = "the filter can't be read"),
))]
pub(super) async fn groups(
    State(operate): State<Operate>,
    Query(query): Query<GroupsQuery>,
) -> Result<Json<Groups>, Problem> {
    let items = operate.dead_groups(&query.filter).await?;
    Ok(Json(Groups { items }))
}

/// See one item: its row, its payload, its attempts, and what people did to it.
#[utoipa::path(get, path = "/dead-letters/{table}/{id}", tag = "operations", security(("bearer" = ["read"])), params(
    ("table" = String, Path, description = "the work table, e.g. orders.outbox_orders"),
    ("id" = i64, Path, description = "its number there"),
), responses(
    (status = 200, description = "what is known of it; it need not be dead any more", body = ItemView),
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
            "There is no such row: a work table of the listing and a number in it are wanted; what is done or archived may be gone.",
        )
    })
}

/// What is to be done to dead letters.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct DeedRequest {
    /// Which are meant, in the words of the listing; empty only with `all`.
    #[schema(example = "service:payments code:TIMEOUT since:2h")]
    filter: String,
    /// All dead letters are meant, where the filter is empty: an empty one may be a mistake.
    #[serde(default)]
    all: bool,
    /// Why, for the audit.
    #[serde(default)]
    reason: Option<String>,
    /// At most so many per second; absent: as fast as it goes.
    #[serde(default)]
    #[schema(minimum = 0.001, maximum = 1_000_000)]
    rate: Option<f64>,
    /// At most so many in all.
    #[serde(default)]
    #[schema(minimum = 1)]
    most: Option<i64>,
    /// Orders may be stale by now: redrive them nevertheless. Without it they are skipped.
    #[serde(default)]
    allow_stale: bool,
    /// Only say what would be changed.
    #[serde(default)]
    dry_run: bool,
}

/// Redrive dead letters: they begin anew with fresh attempts.
///
/// What fits now is meant, what dies later is not. The order is durable and goes on whatever happens to this process; the
/// answer says how far it has come, and `/dead-letters/operations/{id}` says it again.
#[utoipa::path(post, path = "/dead-letters/redrive", tag = "operations", security(("bearer" = ["operate"])), request_body = DeedRequest, responses(
    (status = 202, description = "taken; it goes on in the background", body = OperationView),
    (status = 200, description = "with `dry_run`: what would be changed", body = Preview),
    (status = 400, description = "the filter can't be read"),
))]
pub(super) async fn redrive(
    State(operate): State<Operate>,
    caller: Caller,
    Json(request): Json<DeedRequest>,
) -> Result<Response, Problem> {
    act(&operate, &caller, Action::Redrive, request).await
}

/// Archive dead letters: they are laid to rest.
#[utoipa::path(post, path = "/dead-letters/archive", tag = "operations", security(("bearer" = ["operate"])), request_body = DeedRequest, responses(
    (status = 202, description = "taken; it goes on in the background", body = OperationView),
    (status = 200, description = "with `dry_run`: what would be changed", body = Preview),
    (status = 400, description = "the filter can't be read"),
))]
pub(super) async fn archive(
    State(operate): State<Operate>,
    caller: Caller,
    Json(request): Json<DeedRequest>,
) -> Result<Response, Problem> {
    act(&operate, &caller, Action::Archive, request).await
}

async fn act(
    operate: &Operate,
    caller: &Caller,
    action: Action,
    request: DeedRequest,
) -> Result<Response, Problem> {
    let longest = request.reason.as_ref().map_or(0, String::len);
    if longest > LONGEST_REASON {
        let problem = format!("at most {LONGEST_REASON} bytes");
        return Err(Problem::new(
            &INVALID_VALUE,
            format!("The reason was refused: {problem}."),
        )
        .field("/reason", problem));
    }
    if request.filter.trim().is_empty() && !request.all {
        let problem = "is empty; say which are meant, or all";
        return Err(Problem::new(
            &INVALID_VALUE,
            "The filter is empty; say `\"all\": true` if all dead letters are meant.",
        )
        .field("/filter", problem));
    }
    let wish = Wish {
        filter: &request.filter,
        rate: request.rate,
        most: request.most,
        allow_stale: request.allow_stale,
    };
    if request.dry_run {
        let preview = operate.preview_of(&wish).await?;
        return Ok((StatusCode::OK, Json(preview)).into_response());
    }
    let operator = Operator {
        name: caller.name().to_owned(),
        reason: request.reason,
    };
    let taken = operate.act(action, &operator, &wish).await?;
    Ok((StatusCode::ACCEPTED, Json(taken)).into_response())
}

/// Which orders to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct OperationsQuery {
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many the page holds.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List redrives and archivings, the newest first.
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
    let found = operate.operations(before, query.limit.to_select()).await?;
    Ok(Json(Page::cut(
        found,
        query.limit,
        OPERATIONS,
        |operation| operation.id,
    )?))
}

/// See how far a redrive or an archiving has come.
#[utoipa::path(get, path = "/dead-letters/operations/{id}", tag = "operations", security(("bearer" = ["read"])), params(
    ("id" = i64, Path, description = "its number"),
), responses(
    (status = 200, description = "how far it has come", body = OperationView),
    (status = 404, description = "no such operation"),
))]
pub(super) async fn operation(
    State(operate): State<Operate>,
    Path(id): Path<i64>,
) -> Result<Json<OperationView>, Problem> {
    operate.operation(id).await?.map(Json).ok_or_else(unknown)
}

/// Stop a redrive or an archiving; what it has done stays done.
#[utoipa::path(post, path = "/dead-letters/operations/{id}/stop", tag = "operations", security(("bearer" = ["operate"])), params(
    ("id" = i64, Path, description = "its number"),
), responses(
    (status = 200, description = "it has ended, now or before", body = OperationView),
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
        .ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::new(
        &OPERATION_NOT_FOUND,
        "There is no operation with this number: `/dead-letters/operations` lists them.",
    )
}
