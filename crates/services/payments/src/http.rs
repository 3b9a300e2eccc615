//! The API of the orchestrator: post a payment, see it, list them, reconcile; and the way back from the wallet.

mod wallet;

use axum::{
    extract::{FromRef, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use postrider::lease::Operator;
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, Scope,
    error_code::codes::{IDEMPOTENCY_MISMATCH, INVALID_VALUE},
    list_of, require,
};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    Payments,
    accept::Answer,
    codes::{PAYMENT_NOT_FOUND, PAYMENT_SETTLED},
    model::{
        Invalid, Outcome, Payment, PaymentRequest, PaymentView, Receipt, Status, TraceContext,
    },
    reconcile::Report,
    store::{Filter, Told},
};

/// The name of the listing in its cursors.
const LIST: &str = "payments";

/// The longest reason that the wallet may give, in bytes.
const LONGEST_REASON: usize = 200;

/// The routes, for a program whose state has [`Payments`] in it.
pub fn routes<S>() -> OpenApiRouter<S>
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
    submit
        .merge(read)
        .merge(operate)
        .merge(internal)
        .merge(wallet::routes())
}

/// Accept a payment.
///
/// Once per uuid: the same request again is answered with how it stands, another request under the same uuid is refused.
/// When the answer is 202 or 200, the request and its message to the wallet are durable.
#[utoipa::path(post, path = "/payments", tag = "payments", security(("bearer" = ["submit"])), params(
    ("traceparent" = Option<String>, Header, description = "W3C trace context: goes with the message and the call back; an invalid one is ignored"),
    ("tracestate" = Option<String>, Header, description = "goes along with it, up to 512 characters"),
), request_body = PaymentRequest, responses(
    (status = 202, description = "accepted", body = Receipt),
    (status = 200, description = "accepted before; how it stands", body = Receipt),
    (status = 409, description = "the uuid was used for another request"),
))]
async fn post_payment(
    State(payments): State<Payments>,
    headers: HeaderMap,
    Json(request): Json<PaymentRequest>,
) -> Result<Response, Problem> {
    let mut payment = Payment::try_from(request).map_err(invalid)?;
    payment.trace = TraceContext::of_request(&headers);
    Ok(match payments.accept(payment).await? {
        Answer::Accepted(receipt) => (StatusCode::ACCEPTED, Json(receipt)).into_response(),
        Answer::Replay(receipt) => (StatusCode::OK, Json(receipt)).into_response(),
        Answer::Mismatch => Problem::new(
            &IDEMPOTENCY_MISMATCH,
            "A payment with other content was accepted under this uuid: take a new uuid for a new payment.",
        )
        .field("/uuid", "used for another payment")
        .into_response(),
    })
}

/// See a payment: how it stands, and if it is pending or failed, why.
#[utoipa::path(get, path = "/payments/{uuid}", tag = "payments", security(("bearer" = ["read"])), params(
    ("uuid" = Uuid, Path, description = "the payment's uuid")
), responses(
    (status = 200, description = "what is known of it", body = PaymentView),
    (status = 404, description = "no such payment"),
))]
async fn get_payment(
    State(payments): State<Payments>,
    Path(uuid): Path<Uuid>,
) -> Result<Json<PaymentView>, Problem> {
    payments.show(uuid).await?.map(Json).ok_or_else(not_found)
}

/// Which payments to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only those that stand so.
    status: Option<Status>,
    /// Only those of this account.
    account_id: Option<String>,
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many payments the page holds.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List payments, the newest first.
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
    let list = list_of(LIST, &filter)?;
    let before: Option<i64> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let rows = payments
        .list(&filter, before, query.limit.to_select())
        .await?;
    let page = Page::cut(rows, query.limit, &list, |(seq, _)| *seq)?;
    Ok(Json(page.map(|(_, view)| view)))
}

/// Settle what is stuck, from the wallet's facts.
///
/// Looks at requests that are pending for longer than `payments.reconcile.after`. One that the wallet has not handled is
/// declared failed, after the wallet has been told to refuse it for ever.
#[utoipa::path(post, path = "/payments/reconcile", tag = "payments", security(("bearer" = ["operate"])), responses(
    (status = 200, description = "what it looked at, what it settled, and why each was stuck", body = Report),
))]
async fn reconcile(
    State(payments): State<Payments>,
    caller: Caller,
) -> Result<Json<Report>, Problem> {
    let operator = Operator::new(caller.name());
    Ok(Json(payments.reconcile(&operator).await?))
}

/// How a payment ended, as the wallet tells.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EndingRequest {
    /// How it ended.
    status: Outcome,
    /// Why it failed.
    #[serde(default)]
    reason: Option<String>,
}

/// Be told how a payment ended.
///
/// May be repeated. A payment that has ended never changes its end.
#[utoipa::path(put, path = "/internal/requests/{uuid}", tag = "payments", security(("bearer" = ["internal"])), params(
    ("uuid" = Uuid, Path, description = "the payment's uuid")
), request_body = EndingRequest, responses(
    (status = 200, description = "so it stands", body = Receipt),
    (status = 404, description = "no such payment"),
    (status = 409, description = "the payment has ended the other way"),
))]
async fn put_request(
    State(payments): State<Payments>,
    Path(uuid): Path<Uuid>,
    Json(ending): Json<EndingRequest>,
) -> Result<Json<Receipt>, Problem> {
    if ending
        .reason
        .as_ref()
        .is_some_and(|reason| reason.len() > LONGEST_REASON)
    {
        let problem = "is longer than 200 bytes".to_owned();
        return Err(invalid(Invalid {
            field: "/reason",
            problem,
        }));
    }
    let reason = ending.reason.as_deref();
    match payments.settle(uuid, ending.status, reason).await? {
        Told::Settled | Told::Repeated => Ok(Json(Receipt {
            uuid,
            status: ending.status.into(),
        })),
        Told::Unknown => Err(not_found()),
        Told::Contradicted(status) => Err(Problem::new(
            &PAYMENT_SETTLED,
            "The payment has ended the other way, and stays so: compare its uuid in the wallet's books.",
        )
        .with("status_now", Status::as_str(status))),
    }
}

fn not_found() -> Problem {
    Problem::new(&PAYMENT_NOT_FOUND, "No payment has this uuid.")
}

fn invalid(Invalid { field, problem }: Invalid) -> Problem {
    let detail = format!("The request was refused: {field} {problem}.");
    Problem::new(&INVALID_VALUE, detail).field(field, problem)
}
