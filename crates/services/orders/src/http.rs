//! The API: post an order, see it, list them, cancel, redrive.

use std::sync::Arc;

use axum::{
    extract::{FromRef, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use postrider::{
    lease::Operator,
    ledger::{Key, LedgerError},
    timeline::Trail,
    wake::Waker,
};
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, Scope,
    error_code::codes::{IDEMPOTENCY_MISMATCH, INVALID_VALUE},
    list_of, require,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    OUTBOX_ORDERS,
    accept::{Acceptor, Answer},
    codes::{ORDER_NOT_CANCELLABLE, ORDER_NOT_FOUND, ORDER_NOT_REDRIVABLE, REDRIVE_NOT_CONFIRMED},
    counters,
    model::{self, Invalid, Order, OrderRequest, OrderView, OutboxStatus},
    operate::{self, Refused},
    settings::Ordering,
    store::{self, Filter, Listed},
    timeline,
};

/// The name of the listing in its cursors.
const LIST: &str = "orders";

/// The service behind the API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Orders(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    waker: Waker,
    acceptor: Acceptor,
}

impl Orders {
    /// Starts accepting. Call it inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, ordering: Ordering) -> Self {
        counters::register();
        let waker = Waker::new(pool.clone());
        let acceptor = Acceptor::start(&pool, &waker, ordering);
        Self(Arc::new(Inner {
            pool,
            waker,
            acceptor,
        }))
    }

    /// Accepts an order, or tells what is known of it; returns when that is durable.
    pub async fn accept(&self, order: Order) -> Result<Answer, LedgerError> {
        self.0.acceptor.accept(order).await
    }

    /// What is known under a key.
    pub async fn show(&self, key: &str) -> Result<Option<OrderView>, sqlx::Error> {
        Ok(store::views(&self.0.pool, &[key]).await?.pop())
    }

    /// The newest orders first, older than the place `before`.
    pub async fn list(
        &self,
        filter: &Filter,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Listed>, sqlx::Error> {
        store::list(&self.0.pool, filter, before, limit).await
    }

    /// What happened to the order under this key, for whoever follows it.
    pub async fn trail(&self, key: &str) -> Result<Vec<Trail>, sqlx::Error> {
        timeline::trail(&self.0.pool, key).await
    }

    /// Calls off an order that certainly never reached the broker.
    pub async fn cancel(&self, key: &Key, operator: &Operator) -> Result<(), Refused> {
        operate::cancel(&self.0.pool, key, operator).await
    }

    /// Lets an aborted order begin anew.
    pub async fn redrive(&self, key: &Key, operator: &Operator) -> Result<(), Refused> {
        operate::redrive(&self.0.pool, key, operator).await?;
        self.0.waker.wake(&OUTBOX_ORDERS);
        Ok(())
    }
}

/// The routes, for a program whose state has [`Orders`] in it.
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
/// Once per idempotency key: the same request again is answered with what is recorded of it, another request under the
/// same key is refused. When the answer is 202 or 200, the order is durable.
#[utoipa::path(post, path = "/do/order", tag = "orders", security(("bearer" = ["submit"])), request_body = OrderRequest, responses(
    (status = 202, description = "accepted; it will be sent", body = OrderView),
    (status = 200, description = "accepted before; its recorded state or result", body = OrderView),
    (status = 409, description = "the key was used for another request"),
))]
async fn post_order(
    State(orders): State<Orders>,
    Json(request): Json<OrderRequest>,
) -> Result<Response, Problem> {
    let order = Order::try_from(request).map_err(invalid)?;
    Ok(match orders.accept(order).await? {
        Answer::Accepted(view) => (StatusCode::ACCEPTED, Json(view)).into_response(),
        Answer::Replay(view) => (StatusCode::OK, Json(view)).into_response(),
        Answer::Mismatch => Problem::new(
            &IDEMPOTENCY_MISMATCH,
            "An order with other content was accepted under this idempotency_key: take a new key for a new order.",
        )
        .field("/idempotency_key", "used for another order")
        .into_response(),
    })
}

/// See an order: its ledger entry, its attempts, its result.
#[utoipa::path(get, path = "/do/order/{key}", tag = "orders", security(("bearer" = ["read"])), params(
    ("key" = String, Path, description = "the idempotency key")
), responses(
    (status = 200, description = "what is known of it", body = OrderView),
    (status = 404, description = "no order was accepted under this key"),
))]
async fn get_order(
    State(orders): State<Orders>,
    Path(key): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    orders.show(&key).await?.map(Json).ok_or_else(not_found)
}

/// Which orders to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only those that stand so.
    status: Option<OutboxStatus>,
    /// Only those of this account.
    account: Option<String>,
    /// Only those of this symbol.
    symbol: Option<String>,
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many orders the page holds.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List orders, the newest first.
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
    let list = list_of(LIST, &filter)?;
    let before: Option<i64> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let rows = orders
        .list(&filter, before, query.limit.to_select())
        .await?;
    let page = Page::cut(rows, query.limit, &list, |listed| listed.place)?;
    Ok(Json(page.map(|listed| listed.view)))
}

/// Cancel an order that was not sent yet.
#[utoipa::path(post, path = "/do/order/{key}/cancel", tag = "orders", security(("bearer" = ["submit"])), params(
    ("key" = String, Path, description = "the idempotency key")
), responses(
    (status = 200, description = "cancelled", body = OrderView),
    (status = 404, description = "no such order"),
    (status = 409, description = "the order may have reached the broker, or is finished or cancelled already"),
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
    orders.show(&key).await?.map(Json).ok_or_else(not_found)
}

/// What a redrive must say.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct RedriveRequest {
    /// True: send it although the market may have moved on since.
    #[serde(default)]
    allow_stale: bool,
    /// Why, for the audit.
    #[serde(default)]
    reason: Option<String>,
}

/// Send an aborted order anew.
///
/// A stale order costs money: it is sent only if the request says so.
#[utoipa::path(post, path = "/do/order/{key}/redrive", tag = "orders", security(("bearer" = ["operate"])), params(
    ("key" = String, Path, description = "the idempotency key")
), request_body = RedriveRequest, responses(
    (status = 200, description = "it begins anew", body = OrderView),
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
            "An order that was aborted may be stale by now: to send it nevertheless, say `\"allow_stale\": true` (on the command line `--allow-stale`).",
        )
        .field("/allow_stale", "must be true"));
    }
    let ledger_key = model::key(&key).map_err(|_| not_found())?;
    let mut operator = Operator::new(caller.name());
    operator.reason = request.reason;
    orders.redrive(&ledger_key, &operator).await?;
    orders.show(&key).await?.map(Json).ok_or_else(not_found)
}

fn not_found() -> Problem {
    Problem::new(&ORDER_NOT_FOUND, "No order was accepted under this key.")
}

fn invalid(invalid: Invalid) -> Problem {
    match invalid {
        Invalid::Digest(error) => error.into(),
        Invalid::Field { field, problem } => Problem::new(
            &INVALID_VALUE,
            format!("The order was refused: {field} {problem}."),
        )
        .field(field, problem),
        Invalid::Key(error) => {
            Problem::new(&INVALID_VALUE, format!("The order was refused: {error}."))
                .field("/idempotency_key", error.to_string())
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        match refused {
            Refused::Unknown => Self::new(&ORDER_NOT_FOUND, detail),
            Refused::NotCancellable { .. } => Self::new(&ORDER_NOT_CANCELLABLE, detail),
            Refused::NotRedrivable { .. } => Self::new(&ORDER_NOT_REDRIVABLE, detail),
            Refused::Ledger(error) => error.into(),
        }
    }
}
