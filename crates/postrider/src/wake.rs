//! Wake-ups: a hint that something became due, so that workers need not wait for their next poll.
//!
//! A hint may be lost at no cost but a poll interval. It is sent after the commit, never inside the caller's
//! transaction (where NOTIFY takes a lock that all committers share), and while one is on its way all others join
//! the next: however many messages are enqueued, one process sends one hint at a time.

mod hints;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::PgPool;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

pub use hints::Hints;

use crate::lease::WorkTable;

/// The channel that workers listen on; the payload is the table's name.
pub const CHANNEL: &str = "postrider_wake";

const NOTIFY: &str = "select pg_notify('postrider_wake', t) from unnest($1::text[]) t";

#[derive(Debug, Default)]
struct Shared {
    tables: Mutex<BTreeSet<&'static str>>,
    changed: Notify,
}

/// Sends hints from one process, coalesced. Cheap to clone; stops when the last clone is gone.
#[derive(Debug, Clone)]
pub struct Waker {
    shared: Arc<Shared>,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl Waker {
    /// A waker that sends through this pool. Call it inside a tokio runtime.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(send(pool, Arc::clone(&shared)));
        Self {
            shared,
            _task: Arc::new(AbortOnDropHandle::new(task)),
        }
    }

    /// Something became due in this table; call it after the commit. Never blocks.
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
        if let Err(error) = sqlx::query(NOTIFY).bind(tables).execute(&pool).await {
            tracing::debug!(%error, "a wake-up was not sent; workers find the work at their next poll");
        }
    }
}
