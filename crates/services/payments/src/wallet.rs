//! The wallet: the side that has the money.
//!
//! It takes a payment in, deducts and books it in one transaction, once per uuid ([`books`], [`listener`]), and tells the
//! orchestrator what became of it ([`callback`]; [`notify`] when that must not be lost). What it knows can be asked.

pub mod books;
pub mod callback;
pub mod listener;
pub mod notify;
pub(crate) mod store;

use std::collections::HashMap;
use std::time::Duration;

use sqlx::PgPool;
use uuid::Uuid;

use crate::model::{AccountView, EntryView, Fact, Invalid, Money, Outcome};

/// The wallet's own connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Wallet {
    pub(crate) pool: PgPool,
    /// Longer than this no call back of the mode `chance` takes.
    telling: Duration,
}

/// What became of the wish to open an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// It is new.
    New(AccountView),
    /// It was opened before with the same content; so it stands.
    Before(AccountView),
    /// It was opened before with other content.
    Otherwise,
}

/// An account that may be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    pub(crate) account_id: String,
    pub(crate) balance: Money,
}

impl Opening {
    /// An account with this id that begins with this balance.
    pub fn new(account_id: String, balance: Money) -> Result<Self, Invalid> {
        Ok(Self {
            account_id: crate::model::account_id(account_id)?,
            balance,
        })
    }
}

/// What the wallet says of a payment that it was told to refuse from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It had been handled.
    Handled(Outcome, Option<String>),
    /// It had not, and never will be; the flag says whether the listener had failed over it.
    Refused { given_up: bool },
}

impl Wallet {
    /// A wallet in the database of this pool, whose call backs take at most this long.
    #[must_use]
    pub const fn new(pool: PgPool, callback_timeout: Duration) -> Self {
        Self {
            pool,
            telling: callback_timeout,
        }
    }

    /// Its connections.
    #[must_use]
    pub const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Opens an account, once.
    pub async fn open(&self, opening: &Opening) -> Result<Opened, sqlx::Error> {
        if store::open(&self.pool, opening).await? {
            return Ok(Opened::New(AccountView {
                account_id: opening.account_id.clone(),
                currency: opening.balance.currency.to_string(),
                balance: opening.balance.to_string(),
            }));
        }
        let account = store::account(&self.pool, &opening.account_id).await?;
        Ok(match account {
            Some((view, opened)) if opened == Some(opening.balance) => Opened::Before(view),
            _ => Opened::Otherwise,
        })
    }

    /// An account as it stands.
    pub async fn account(&self, account_id: &str) -> Result<Option<AccountView>, sqlx::Error> {
        let account = store::account(&self.pool, account_id).await?;
        Ok(account.map(|(view, _)| view))
    }

    /// The books of an account, the newest line first, older than the line `before`.
    pub async fn entries(
        &self,
        account_id: &str,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<EntryView>, sqlx::Error> {
        store::entries(&self.pool, account_id, before, limit).await
    }

    /// What it knows of payments whose end the orchestrator does not know.
    pub async fn facts(&self, uuids: &[Uuid]) -> Result<HashMap<Uuid, Fact>, sqlx::Error> {
        store::facts(&self.pool, uuids, self.telling).await
    }

    /// From now on refuses each of these that it has not handled; returns, when that is durable, how each stands.
    pub(crate) async fn refuse(
        &self,
        uuids: &[Uuid],
    ) -> Result<HashMap<Uuid, Verdict>, sqlx::Error> {
        store::tombstones(&self.pool, uuids).await?;
        store::verdicts(&self.pool, uuids).await
    }
}
