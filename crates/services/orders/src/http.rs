//! The HTTP API: post, get, list, cancel and redrive orders.

use axum::{
    extract::{FromRef, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use postrider::lease::Operator;
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, Scope,
    error_code::codes::IDEMPOTENCY_MISMATCH, require,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Orders,
    codes::{ORDER_NOT_FOUND, REDRIVE_NOT_CONFIRMED},
    model::{self, Order, OrderRequest, OrderView, OutboxStatus},
    service::AcceptOutcome,
    store::Filter,
};

/// The routes, for an application whose state contains [`Orders`].
pub fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Orders: FromRef<S>,
{
    let submit = OpenApiRouter::new()
        .routes(routes!(post_order))
        .routes(routes!(cancel_order))
        .route_layer(require(Scope::Submit));
    let read = OpenApiRouter::new()
        .routes(routes!(get_order))
        .routes(routes!(list_orders))
        .route_layer(require(Scope::Read));
    let operate = OpenApiRouter::new()
        .routes(routes!(redrive_order))
        .route_layer(require(Scope::Operate));
    submit.merge(read).merge(operate)
}

/// Accept an order.
///
/// Once per idempotency key: repeating the same request returns the recorded order, a different request under the same
/// key is refused. A 202 or 200 means that the order is durable.
#[utoipa::path(post, path = "/do/order", tag = "orders", security(("bearer" = ["submit"])), request_body = OrderRequest, responses(
    (status = 202, description = "accepted for sending", body = OrderView),
    (status = 200, description = "accepted before; the recorded order", body = OrderView),
    (status = 409, description = "the key was used for a different request"),
))]
async fn post_order(
    State(orders): State<Orders>,
    Json(request): Json<OrderRequest>,
) -> Result<Response, Problem> {
    let order = Order::try_from(request)?;
    Ok(match orders.accept(order).await? {
        AcceptOutcome::Accepted(view) => (StatusCode::ACCEPTED, Json(view)).into_response(),
        AcceptOutcome::Replay(view) => (StatusCode::OK, Json(view)).into_response(),
        AcceptOutcome::Mismatch => Problem::new(
            &IDEMPOTENCY_MISMATCH,
            "A different order was accepted under this idempotency_key. Use a new key for a new order.",
        )
        .field("/idempotency_key", "used for a different order")
        .into_response(),
    })
}

/// Get an order: its ledger entry, attempts and result.
#[utoipa::path(get, path = "/do/order/{key}", tag = "orders", security(("bearer" = ["read"])), params(
    ("key" = String, Path, description = "the idempotency key")
), responses(
    (status = 200, description = "the order", body = OrderView),
    (status = 404, description = "no order was accepted under this key"),
))]
async fn get_order(
    State(orders): State<Orders>,
    Path(key): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    orders.get(&key).await?.map(Json).ok_or_else(not_found)
}

/// Which orders to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only orders with this status.
    status: Option<OutboxStatus>,
    /// Only orders of this account.
    account: Option<String>,
    /// Only orders of this symbol.
    symbol: Option<String>,
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of orders per page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List orders, newest first.
#[utoipa::path(get, path = "/do/order", tag = "orders", security(("bearer" = ["read"])), params(ListQuery), responses(
    (status = 200, description = "one page", body = Page<OrderView>),
))]
async fn list_orders(
    State(orders): State<Orders>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<OrderView>>, Problem> {
    let filter = Filter {
        status: query.status,
        account: query.account,
        symbol: query.symbol,
    };
    let page = orders
        .list(&filter, query.cursor.as_ref(), query.limit)
        .await?;
    Ok(Json(page.map(|listed| listed.view)))
}

/// Cancel an order that has not been sent yet.
#[utoipa::path(post, path = "/do/order/{key}/cancel", tag = "orders", security(("bearer" = ["submit"])), params(
    ("key" = String, Path, description = "the idempotency key")
), responses(
    (status = 200, description = "cancelled", body = OrderView),
    (status = 404, description = "no such order"),
    (status = 409, description = "the order may have reached the broker, or is already finished or cancelled"),
))]
async fn cancel_order(
    State(orders): State<Orders>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    let ledger_key = model::key(&key).map_err(|_| not_found())?;
    orders
        .cancel(&ledger_key, &Operator::new(caller.name()))
        .await?;
    orders.get(&key).await?.map(Json).ok_or_else(not_found)
}

/// A redrive's confirmation and reason.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct RedriveRequest {
    /// Must be true: send the order although the market may have moved.
    #[serde(default)]
    allow_stale: bool,
    /// Reason, for the audit log.
    #[serde(default)]
    reason: Option<String>,
}

/// Redrive an aborted order.
///
/// Sending a stale order can cost money, so the request must confirm it with `allow_stale`.
#[utoipa::path(post, path = "/do/order/{key}/redrive", tag = "orders", security(("bearer" = ["operate"])), params(
    ("key" = String, Path, description = "the idempotency key")
), request_body = RedriveRequest, responses(
    (status = 200, description = "redriven", body = OrderView),
    (status = 404, description = "no such order"),
    (status = 409, description = "the order is not aborted, was cancelled, has expired, or `allow_stale` is missing"),
))]
async fn redrive_order(
    State(orders): State<Orders>,
    caller: Caller,
    Path(key): Path<String>,
    Json(request): Json<RedriveRequest>,
) -> Result<Json<OrderView>, Problem> {
    if !request.allow_stale {
        return Err(Problem::new(
            &REDRIVE_NOT_CONFIRMED,
            "An aborted order may be stale by now. To send it anyway, set `\"allow_stale\": true` (on the command line: `--allow-stale`).",
        )
        .field("/allow_stale", "must be true"));
    }
    let ledger_key = model::key(&key).map_err(|_| not_found())?;
    let mut operator = Operator::new(caller.name());
    operator.reason = request.reason;
    orders.redrive(&ledger_key, &operator).await?;
    orders.get(&key).await?.map(Json).ok_or_else(not_found)
}

fn not_found() -> Problem {
    Problem::new(&ORDER_NOT_FOUND, "No order was accepted under this key.")
}
