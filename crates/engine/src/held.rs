//! Connections that may never answer again.
//!
//! A link can go silent without breaking: a firewall that forgot it, a machine that lost its power. The call would be
//! waited for until TCP gives up, which takes minutes to hours, and a connection in such a state must not go back into
//! the pool, where the next one would wait for it. So a call has an end, and a connection whose answer was not read
//! whole, whatever kept it, is closed.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

use crate::{Error, Result};

/// How long a call is waited for, where nothing else says so.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The least that a call may take: a short lease is no reason to give up on a busy server.
pub(crate) const LEAST_PATIENCE: Duration = Duration::from_secs(5);

/// A connection out of the pool; closed when dropped, unless it was [given back](Self::give_back).
pub(crate) struct Held {
    connection: PoolConnection<Postgres>,
    answered: bool,
}

impl Held {
    pub async fn acquire(pool: &PgPool) -> Result<Self> {
        Ok(Self {
            connection: pool.acquire().await?,
            answered: false,
        })
    }

    /// Nothing is on its way any more: somebody else can use the connection.
    pub fn give_back(mut self) {
        self.answered = true;
    }

    /// Gives it back if the server answered, be it with an error.
    pub fn end<T>(self, result: Result<T>) -> Result<T> {
        if let Ok(_) | Err(Error::Database(sqlx::Error::Database(_))) = &result {
            self.give_back();
        }
        result
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.answered {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Held {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// Waits for the answer, but not for ever.
pub(crate) async fn answer<T>(
    patience: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let silent = |_| {
        let what = format!("no answer within {}", humantime::format_duration(patience));
        Error::Database(std::io::Error::new(std::io::ErrorKind::TimedOut, what).into())
    };
    tokio::time::timeout(patience, call).await.map_err(silent)?
}
