//! The wallet: the side that holds the money.
//!
//! [`consumer`] deducts each payment in one transaction, once per uuid ([`deduction`] decides, `store` writes).
//! [`callback`] reports the result to the requests' side; in mode `assured`, [`worker`] delivers callbacks from an outbox.

pub mod callback;
pub mod cleaning;
pub mod consumer;
pub mod deduction;
pub(crate) mod http;
pub(crate) mod store;
mod table;
pub mod worker;

use std::collections::HashMap;
use std::time::Duration;

use postrider_web::{Cursor, Limit, Page, Problem, list_id};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    PaymentError,
    model::{AccountView, EntryView, Money, Outcome, WalletState},
};

pub use table::{WALLET_CHECKS, WALLET_OUTBOX};

/// The consumer group that all wallets of an installation share.
pub const GROUP: &str = "wallet";

/// The name of the entries' listing in its cursors.
const ENTRIES: &str = "wallet.entries";

/// The wallet and its own connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Wallet {
    pub(crate) pool: PgPool,
    /// Maximum duration of a callback in mode `chance`.
    callback_timeout: Duration,
}

/// An account to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAccount {
    pub(crate) account_id: String,
    pub(crate) balance: Money,
}

impl NewAccount {
    /// An account with this id and opening balance.
    pub fn new(account_id: String, balance: Money) -> Result<Self, PaymentError> {
        Ok(Self {
            account_id: crate::model::account_id(account_id)?,
            balance,
        })
    }
}

/// The result of opening an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenOutcome {
    /// The account is new.
    Created(AccountView),
    /// The same account was opened before.
    Existing(AccountView),
}

/// A payment in the wallet's inbox, after a reconciliation has placed its tombstones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InboxState {
    /// It had been handled.
    Handled(Outcome, Option<String>),
    /// It had not, and never will be.
    Tombstone { consumer_failed: bool },
}

impl Wallet {
    /// A wallet in the database of this pool, whose callbacks take at most this long.
    #[must_use]
    pub const fn new(pool: PgPool, callback_timeout: Duration) -> Self {
        Self {
            pool,
            callback_timeout,
        }
    }

    /// The wallet's connections.
    #[must_use]
    pub const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Opens an account, once.
    pub async fn open(&self, new: &NewAccount) -> Result<OpenOutcome, PaymentError> {
        if store::open(&self.pool, new).await? {
            return Ok(OpenOutcome::Created(AccountView {
                account_id: new.account_id.clone(),
                currency: new.balance.currency.to_string(),
                balance: new.balance.to_string(),
            }));
        }
        match store::account(&self.pool, &new.account_id).await? {
            Some((view, opening)) if opening == Some(new.balance) => {
                Ok(OpenOutcome::Existing(view))
            }
            _ => Err(PaymentError::AccountExists),
        }
    }

    /// The account with this id.
    pub async fn account(&self, account_id: &str) -> Result<AccountView, PaymentError> {
        let account = store::account(&self.pool, account_id).await?;
        let (view, _) = account.ok_or(PaymentError::AccountNotFound)?;
        Ok(view)
    }

    /// One page of an account's entries, newest first.
    pub async fn entries(
        &self,
        account_id: &str,
        cursor: Option<&Cursor>,
        limit: Limit,
    ) -> Result<Page<EntryView>, Problem> {
        let list = list_id(ENTRIES, &account_id)?;
        let before = cursor.map(|cursor| cursor.decode(&list)).transpose()?;
        self.account(account_id).await?;
        let rows = store::entries(&self.pool, account_id, before, limit.rows_to_fetch()).await?;
        Page::from_rows(rows, limit, &list, |entry| entry.id)
    }

    /// The wallet's states of payments that are pending on the requests' side.
    pub async fn states(&self, uuids: &[Uuid]) -> Result<HashMap<Uuid, WalletState>, sqlx::Error> {
        if uuids.is_empty() {
            return Ok(HashMap::new());
        }
        store::states(&self.pool, uuids, self.callback_timeout).await
    }

    /// Durably rules out handling those of these payments that have not been handled yet; returns the state of each.
    pub(crate) async fn place_tombstones(
        &self,
        uuids: &[Uuid],
    ) -> Result<HashMap<Uuid, InboxState>, sqlx::Error> {
        store::place_tombstones(&self.pool, uuids).await?;
        store::inbox_states(&self.pool, uuids).await
    }
}

fn timed_out() -> sqlx::Error {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
