//! The HTTP API of the requests' side: post, get, list and reconcile payments, and the wallet's callback.

use axum::{
    extract::{FromRef, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use postrider::lease::Operator;
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, Scope,
    error_code::codes::IDEMPOTENCY_MISMATCH, require,
};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{accept::AcceptOutcome, store::Filter};
use crate::{
    PaymentError, Payments,
    model::{Outcome, Payment, PaymentReceipt, PaymentRequest, PaymentView, Status, TraceContext},
    reconcile::Report,
};

/// Maximum length of a callback's reason, in bytes.
const MAX_REASON: usize = 200;

pub(crate) fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Payments: FromRef<S>,
{
    let submit = OpenApiRouter::new()
        .routes(routes!(post_payment))
        .route_layer(require(Scope::Submit));
    let read = OpenApiRouter::new()
        .routes(routes!(get_payment))
        .routes(routes!(list_payments))
        .route_layer(require(Scope::Read));
    let operate = OpenApiRouter::new()
        .routes(routes!(reconcile))
        .route_layer(require(Scope::Operate));
    let internal = OpenApiRouter::new()
        .routes(routes!(put_request))
        .route_layer(require(Scope::Internal));
    submit.merge(read).merge(operate).merge(internal)
}

/// Accept a payment.
///
/// Once per uuid: repeating the same request returns the payment's status, a different request under the same uuid is
/// refused. A 202 or 200 means that the request and its message to the wallet are durable.
#[utoipa::path(post, path = "/payments", tag = "payments", security(("bearer" = ["submit"])), params(
    ("traceparent" = Option<String>, Header, description = "W3C trace context, sent with the message and the callback; an invalid one is ignored"),
    ("tracestate" = Option<String>, Header, description = "vendor-specific trace data, up to 512 characters"),
), request_body = PaymentRequest, responses(
    (status = 202, description = "accepted", body = PaymentReceipt),
    (status = 200, description = "accepted before; its status", body = PaymentReceipt),
    (status = 409, description = "the uuid was used for a different request"),
))]
async fn post_payment(
    State(payments): State<Payments>,
    headers: HeaderMap,
    Json(request): Json<PaymentRequest>,
) -> Result<Response, Problem> {
    let mut payment = Payment::try_from(request)?;
    payment.trace = TraceContext::from_request(&headers);
    Ok(match payments.accept(payment).await? {
        AcceptOutcome::Accepted(receipt) => (StatusCode::ACCEPTED, Json(receipt)).into_response(),
        AcceptOutcome::Replay(receipt) => (StatusCode::OK, Json(receipt)).into_response(),
        AcceptOutcome::Mismatch => Problem::new(
            &IDEMPOTENCY_MISMATCH,
            "A different payment was accepted under this uuid. Use a new uuid for a new payment.",
        )
        .field("/uuid", "used for a different payment")
        .into_response(),
    })
}

/// Get a payment: its status and, if it is pending or failed, why.
#[utoipa::path(get, path = "/payments/{uuid}", tag = "payments", security(("bearer" = ["read"])), params(
    ("uuid" = Uuid, Path, description = "the payment's uuid")
), responses(
    (status = 200, description = "the payment", body = PaymentView),
    (status = 404, description = "no such payment"),
))]
async fn get_payment(
    State(payments): State<Payments>,
    Path(uuid): Path<Uuid>,
) -> Result<Json<PaymentView>, Problem> {
    let payment = payments.get(uuid).await?.ok_or(PaymentError::NotFound)?;
    Ok(Json(payment))
}

/// Which payments to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only payments with this status.
    status: Option<Status>,
    /// Only payments from this account.
    account_id: Option<String>,
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of payments per page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List payments, newest first.
#[utoipa::path(get, path = "/payments", tag = "payments", security(("bearer" = ["read"])), params(ListQuery), responses(
    (status = 200, description = "one page", body = Page<PaymentView>),
))]
async fn list_payments(
    State(payments): State<Payments>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<PaymentView>>, Problem> {
    let filter = Filter {
        status: query.status,
        account_id: query.account_id,
    };
    let page = payments
        .list(&filter, query.cursor.as_ref(), query.limit)
        .await?;
    Ok(Json(page))
}

/// Settle stuck payments from the wallet's records.
///
/// Considers requests that have been pending for longer than `payments.reconcile.after`. A request that the wallet has not
/// handled fails, after the wallet has durably ruled out handling it later.
#[utoipa::path(post, path = "/payments/reconcile", tag = "payments", security(("bearer" = ["operate"])), responses(
    (status = 200, description = "what was considered and settled, and why each payment was stuck", body = Report),
))]
async fn reconcile(
    State(payments): State<Payments>,
    caller: Caller,
) -> Result<Json<Report>, Problem> {
    let operator = Operator::new(caller.name());
    Ok(Json(payments.reconcile(&operator).await?))
}

/// The wallet's result of a payment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ResultRequest {
    /// The result.
    status: Outcome,
    /// Why the payment failed.
    #[serde(default)]
    reason: Option<String>,
}

/// Settle a payment with the wallet's result.
///
/// Can be repeated. A settled payment never changes.
#[utoipa::path(put, path = "/internal/requests/{uuid}", tag = "payments", security(("bearer" = ["internal"])), params(
    ("uuid" = Uuid, Path, description = "the payment's uuid")
), request_body = ResultRequest, responses(
    (status = 200, description = "settled", body = PaymentReceipt),
    (status = 404, description = "no such payment"),
    (status = 409, description = "the payment was settled with the opposite outcome"),
))]
async fn put_request(
    State(payments): State<Payments>,
    Path(uuid): Path<Uuid>,
    Json(result): Json<ResultRequest>,
) -> Result<Json<PaymentReceipt>, Problem> {
    let reason = result.reason.as_deref();
    if reason.is_some_and(|reason| reason.len() > MAX_REASON) {
        return Err(PaymentError::invalid("/reason", "is longer than 200 bytes").into());
    }
    payments.settle(uuid, result.status, reason).await?;
    Ok(Json(PaymentReceipt {
        uuid,
        status: result.status.into(),
    }))
}
