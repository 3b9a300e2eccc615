//! The HTTP API of the wallet: open an account, get it, list its entries.

use axum::{
    extract::{FromRef, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use postrider_web::{Cursor, Json, Limit, Page, Path, Problem, Query, Scope, require};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{NewAccount, OpenOutcome};
use crate::{
    Payments,
    model::{self, AccountView, Amount, EntryView},
};

pub(crate) fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Payments: FromRef<S>,
{
    let operate = OpenApiRouter::new()
        .routes(routes!(open_account))
        .route_layer(require(Scope::Operate));
    let read = OpenApiRouter::new()
        .routes(routes!(get_account))
        .routes(routes!(list_entries))
        .route_layer(require(Scope::Read));
    operate.merge(read)
}

/// An account to open.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AccountRequest {
    /// The account's id.
    #[schema(example = "acc-1")]
    account_id: String,
    /// ISO 4217 currency code.
    #[schema(example = "USD")]
    currency: String,
    /// The opening balance: an exact decimal, zero or greater.
    #[schema(value_type = String, example = "100.00")]
    balance: Amount,
}

/// Open an account.
#[utoipa::path(post, path = "/wallet/accounts", tag = "wallet", security(("bearer" = ["operate"])), request_body = AccountRequest, responses(
    (status = 201, description = "opened", body = AccountView),
    (status = 200, description = "the same account was opened before", body = AccountView),
    (status = 409, description = "opened before with different content"),
))]
async fn open_account(
    State(payments): State<Payments>,
    Json(request): Json<AccountRequest>,
) -> Result<Response, Problem> {
    let balance = model::money(request.balance, &request.currency, "/balance")?;
    let account = NewAccount::new(request.account_id, balance)?;
    Ok(match payments.wallet().open(&account).await? {
        OpenOutcome::Created(view) => (StatusCode::CREATED, Json(view)).into_response(),
        OpenOutcome::Existing(view) => (StatusCode::OK, Json(view)).into_response(),
    })
}

/// Get an account.
#[utoipa::path(get, path = "/wallet/accounts/{id}", tag = "wallet", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "the account's id")
), responses(
    (status = 200, description = "the account", body = AccountView),
    (status = 404, description = "no such account"),
))]
async fn get_account(
    State(payments): State<Payments>,
    Path(id): Path<String>,
) -> Result<Json<AccountView>, Problem> {
    Ok(Json(payments.wallet().account(&id).await?))
}

/// Which entries to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct EntriesQuery {
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of entries per page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List an account's entries, newest first.
#[utoipa::path(get, path = "/wallet/accounts/{id}/entries", tag = "wallet", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "the account's id"), EntriesQuery
), responses(
    (status = 200, description = "one page", body = Page<EntryView>),
    (status = 404, description = "no such account"),
))]
async fn list_entries(
    State(payments): State<Payments>,
    Path(id): Path<String>,
    Query(query): Query<EntriesQuery>,
) -> Result<Json<Page<EntryView>>, Problem> {
    let page = payments
        .wallet()
        .entries(&id, query.cursor.as_ref(), query.limit)
        .await?;
    Ok(Json(page))
}
