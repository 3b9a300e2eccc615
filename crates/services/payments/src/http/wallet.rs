//! The API of the wallet: open an account, see it, read its books.

use axum::{
    extract::{FromRef, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use postrider_web::{Cursor, Json, Limit, Page, Path, Problem, Query, Scope, list_of, require};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::invalid;
use crate::{
    Payments,
    codes::{ACCOUNT_EXISTS, ACCOUNT_NOT_FOUND},
    model::{self, AccountView, Amount, EntryView},
    wallet::{Opened, Opening},
};

/// The name of the listing in its cursors.
const ENTRIES: &str = "wallet.entries";

pub(super) fn routes<S>() -> OpenApiRouter<S>
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
    /// Its id.
    #[schema(example = "acc-1")]
    account_id: String,
    /// Its currency.
    #[schema(example = "USD")]
    currency: String,
    /// What it begins with: an exact decimal, zero or more.
    #[schema(value_type = String, example = "100.00")]
    balance: Amount,
}

/// Open an account.
#[utoipa::path(post, path = "/wallet/accounts", tag = "wallet", security(("bearer" = ["operate"])), request_body = AccountRequest, responses(
    (status = 201, description = "opened", body = AccountView),
    (status = 200, description = "opened before with the same content; so it stands", body = AccountView),
    (status = 409, description = "opened before with other content"),
))]
async fn open_account(
    State(payments): State<Payments>,
    Json(request): Json<AccountRequest>,
) -> Result<Response, Problem> {
    let balance = model::money(request.balance, &request.currency, "/balance").map_err(invalid)?;
    let opening = Opening::new(request.account_id, balance).map_err(invalid)?;
    Ok(match payments.wallet().open(&opening).await? {
        Opened::New(view) => (StatusCode::CREATED, Json(view)).into_response(),
        Opened::Before(view) => (StatusCode::OK, Json(view)).into_response(),
        Opened::Otherwise => Problem::new(
            &ACCOUNT_EXISTS,
            "An account with this id was opened with another currency or balance.",
        )
        .field("/account_id", "is in use")
        .into_response(),
    })
}

/// See an account.
#[utoipa::path(get, path = "/wallet/accounts/{id}", tag = "wallet", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "the account's id")
), responses(
    (status = 200, description = "as it stands", body = AccountView),
    (status = 404, description = "no such account"),
))]
async fn get_account(
    State(payments): State<Payments>,
    Path(id): Path<String>,
) -> Result<Json<AccountView>, Problem> {
    let account = payments.wallet().account(&id).await?;
    account.map(Json).ok_or_else(not_found)
}

/// Which entries to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct EntriesQuery {
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many entries the page holds.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// Read an account's books, the newest line first.
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
    let list = list_of(ENTRIES, &id)?;
    let before: Option<i64> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let wallet = payments.wallet();
    if wallet.account(&id).await?.is_none() {
        return Err(not_found());
    }
    let rows = wallet.entries(&id, before, query.limit.to_select()).await?;
    Ok(Json(Page::cut(rows, query.limit, &list, |entry| entry.id)?))
}

fn not_found() -> Problem {
    Problem::new(&ACCOUNT_NOT_FOUND, "No account has this id.")
}
