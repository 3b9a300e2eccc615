//! Connections that may never answer again.
//!
//! A link can go silent without breaking: a firewall that forgot it, a machine that lost its power. The call would be
//! waited for until TCP gives up, which takes minutes to hours, and a connection in such a state must not go back into
//! the pool, where the next one would wait for it. So a call has an end, and a connection whose answer was not read
//! whole, whatever kept it, is closed.

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

use crate::{Error, Result};

/// How long a call is waited for, where nothing else says so.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The least that a call may take: a short lease is no reason to give up on a busy server.
pub(crate) const MIN_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// So long a connection is kept although nothing is to be done.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// How often it is looked whether somebody has given a connection back.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A connection out of the pool; closed when dropped, unless it was [given back](Self::give_back).
pub(crate) struct ConnGuard {
    connection: PoolConnection<Postgres>,
    answered: bool,
}

impl ConnGuard {
    /// Where the server has no connection left, sqlx asks it again and again for a new one, until its time is up, and does not
    /// see what others give back meanwhile. So that is looked for beside; but only in a pool that was seen without any idle
    /// one. Whatever lies there longer may have gone silent, and sqlx is just about to find out.
    pub async fn acquire(pool: &PgPool) -> Result<Self, sqlx::Error> {
        let mut acquiring = pin!(pool.acquire());
        let mut was_empty = false;
        let connection = loop {
            tokio::select! {
                acquired = &mut acquiring => break acquired?,
                () = tokio::time::sleep(LOOK_AGAIN) => {
                    if was_empty && let Some(given_back) = pool.try_acquire() {
                        break given_back;
                    }
                    was_empty = pool.num_idle() == 0;
                }
            }
        };
        Ok(Self {
            connection,
            answered: false,
        })
    }

    /// Nothing is on its way any more: somebody else can use the connection.
    pub fn give_back(mut self) {
        self.answered = true;
    }

    /// Gives it back if the server answered, be it with an error.
    pub fn end<T>(self, result: Result<T>) -> Result<T> {
        if is_answer(&result) {
            self.give_back();
        }
        result
    }
}

/// Did the server answer, be it with an error?
const fn is_answer<T>(result: &Result<T>) -> bool {
    matches!(
        result,
        Ok(_) | Err(Error::Database(sqlx::Error::Database(_)))
    )
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        if !self.answered {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for ConnGuard {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for ConnGuard {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// A connection that is kept from call to call: taking it from the pool and giving it back are round trips of their own.
pub(crate) struct StickyConn {
    pool: PgPool,
    held: Option<ConnGuard>,
}

impl StickyConn {
    pub const fn new(pool: PgPool) -> Self {
        Self { pool, held: None }
    }

    /// The connection, for one call; hand it back with [`Self::end`].
    pub async fn take(&mut self) -> Result<ConnGuard, sqlx::Error> {
        match self.held.take() {
            Some(held) => Ok(held),
            None => ConnGuard::acquire(&self.pool).await,
        }
    }

    /// After a call that ended well the connection stays here for the next one, unless others may be waiting for it.
    pub fn end<T>(&mut self, held: ConnGuard, result: Result<T>) -> Result<T> {
        let all_in_use = self.pool.num_idle() == 0
            && self.pool.size() >= self.pool.options().get_max_connections();
        if all_in_use || result.is_err() {
            return held.end(result);
        }
        self.held = Some(held);
        result
    }

    /// Both in one, for a call that fails with nothing but the database's errors.
    pub async fn call<T>(
        &mut self,
        call: impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let mut held = self.take().await?;
        let answered = tokio::time::timeout(CALL_TIMEOUT, call(&mut held)).await;
        let answer = answered.map_err(|_| silent(CALL_TIMEOUT))??;
        // What ended well can be kept.
        let _ = self.end(held, Ok(()));
        Ok(answer)
    }

    pub const fn is_kept(&self) -> bool {
        self.held.is_some()
    }

    /// No call will follow for now.
    pub fn give_back(&mut self) {
        if let Some(held) = self.held.take() {
            held.give_back();
        }
    }
}

impl Drop for StickyConn {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Waits for the answer, but not for ever.
pub(crate) async fn answer<T>(
    patience: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let answered = tokio::time::timeout(patience, call).await;
    answered.map_err(|_| silent(patience))?
}

fn silent(patience: Duration) -> sqlx::Error {
    let what = format!("no answer within {}", humantime::format_duration(patience));
    std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()
}
