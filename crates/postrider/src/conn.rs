//! Connections that may never answer again.
//!
//! A link can go silent without breaking: a firewall drops its state, a machine loses power. Without a deadline, a call
//! would wait until TCP gives up, which takes minutes to hours. A connection in that state must not return to the pool
//! either, where the next user would wait for it. So every call has a deadline, and a connection whose answer wasn't
//! read completely is closed.

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

use crate::{Error, Result};

/// Default deadline of a database call.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Lower bound for deadlines derived from a lease: a short lease is no reason to give up on a busy server.
pub(crate) const MIN_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an idle task keeps its connection.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// How often an acquire checks for connections that others returned.
const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A pooled connection that is closed when dropped, unless it was [released](Self::release).
pub(crate) struct ConnGuard {
    connection: PoolConnection<Postgres>,
    released: bool,
}

impl ConnGuard {
    /// When the server has no connection left, sqlx keeps asking it for a new one until the acquire timeout and doesn't
    /// notice connections that others return meanwhile. So this checks for them as well, but only in a pool that was seen
    /// without an idle connection: one that has been idle longer may be silent, and sqlx is about to find out.
    pub async fn acquire(pool: &PgPool) -> Result<Self, sqlx::Error> {
        let mut acquiring = pin!(pool.acquire());
        let mut was_empty = false;
        let connection = loop {
            tokio::select! {
                acquired = &mut acquiring => break acquired?,
                () = tokio::time::sleep(RECHECK_INTERVAL) => {
                    if was_empty && let Some(returned) = pool.try_acquire() {
                        break returned;
                    }
                    was_empty = pool.num_idle() == 0;
                }
            }
        };
        Ok(Self {
            connection,
            released: false,
        })
    }

    /// Returns the connection to the pool. Every answer must have been read.
    pub fn release(mut self) {
        self.released = true;
    }

    /// Returns the connection to the pool if the server answered, even with an error.
    pub fn finish<T>(self, result: Result<T>) -> Result<T> {
        if matches!(
            result,
            Ok(_) | Err(Error::Database(sqlx::Error::Database(_)))
        ) {
            self.release();
        }
        result
    }
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        if !self.released {
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

/// A connection kept between calls, which saves the round trips of acquiring and releasing it.
pub(crate) struct StickyConn {
    pool: PgPool,
    held: Option<ConnGuard>,
}

impl StickyConn {
    pub const fn new(pool: PgPool) -> Self {
        Self { pool, held: None }
    }

    /// Takes the connection for one call. Hand it back with [`Self::put`] or [`Self::finish`].
    pub async fn take(&mut self) -> Result<ConnGuard, sqlx::Error> {
        match self.held.take() {
            Some(held) => Ok(held),
            None => ConnGuard::acquire(&self.pool).await,
        }
    }

    /// Keeps the connection after a successful call, unless others may be waiting for one.
    pub fn put(&mut self, connection: ConnGuard) {
        let all_in_use = self.pool.num_idle() == 0
            && self.pool.size() >= self.pool.options().get_max_connections();
        if all_in_use {
            connection.release();
        } else {
            self.held = Some(connection);
        }
    }

    /// Keeps the connection after a success; after a failure, does as [`ConnGuard::finish`].
    pub fn finish<T>(&mut self, connection: ConnGuard, result: Result<T>) -> Result<T> {
        if result.is_err() {
            return connection.finish(result);
        }
        self.put(connection);
        result
    }

    pub const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the connection to the pool because no call will follow soon.
    pub fn release(&mut self) {
        if let Some(held) = self.held.take() {
            held.release();
        }
    }
}

impl Drop for StickyConn {
    fn drop(&mut self) {
        self.release();
    }
}

/// Runs a call with a deadline.
pub(crate) async fn with_timeout<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let answered = tokio::time::timeout(timeout, call).await;
    answered.map_err(|_| timed_out(timeout))?
}

pub(crate) fn timed_out(timeout: Duration) -> sqlx::Error {
    let what = format!("no answer within {}", humantime::format_duration(timeout));
    std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()
}
