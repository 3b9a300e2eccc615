//! Wake-ups: hints that something became due, so that workers don't wait for their next poll.
//!
//! A lost hint costs no more than a poll interval. Hints are sent after the commit, never inside the caller's
//! transaction, where NOTIFY takes a lock that all committers share. They are coalesced: however many messages are
//! enqueued, one process sends one hint at a time.

pub(crate) mod hints;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::PgPool;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::Result;
use crate::conn::{CALL_TIMEOUT, ConnGuard, with_timeout};
use crate::lease::WorkTable;

/// The channel that workers listen on; the payload is the table's name.
pub const CHANNEL: &str = "postrider_wake";

const NOTIFY: &str = "select pg_notify('postrider_wake', t) from unnest($1::text[]) t";

#[derive(Debug, Default)]
struct Shared {
    tables: Mutex<BTreeSet<&'static str>>,
    changed: Notify,
}

/// Sends coalesced hints. Cheap to clone; stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Waker {
    shared: Arc<Shared>,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl Waker {
    /// Creates a waker that sends through this pool. Call it inside a tokio runtime.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(send(pool, Arc::clone(&shared)));
        Self {
            shared,
            _task: Arc::new(AbortOnDropHandle::new(task)),
        }
    }

    /// Announces that something became due in this table. Call it after the commit. Never blocks.
    pub fn wake(&self, table: &'static WorkTable) {
        self.tables().insert(table.name);
        self.shared.changed.notify_one();
    }

    fn tables(&self) -> std::sync::MutexGuard<'_, BTreeSet<&'static str>> {
        self.shared
            .tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send(pool: PgPool, shared: Arc<Shared>) {
    loop {
        shared.changed.notified().await;
        let tables: Vec<&str> = {
            let mut tables = shared.tables.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tables).into_iter().collect()
        };
        if let Err(error) = with_timeout(CALL_TIMEOUT, notify(&pool, tables)).await {
            tracing::debug!(%error, "could not send a wake-up hint; workers find the work at their next poll");
        }
    }
}

async fn notify(pool: &PgPool, tables: Vec<&str>) -> Result<()> {
    let mut connection = ConnGuard::acquire(pool).await?;
    let sent = sqlx::query(NOTIFY)
        .bind(tables)
        .execute(&mut *connection)
        .await;
    connection.finish(sent.map(drop).map_err(Into::into))
}
