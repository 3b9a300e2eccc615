//! Receives the hints of all tables on one connection, for all subscribers of the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::CHANNEL;
use crate::lease::WorkTable;

/// How long to wait after a failure before listening again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Subscribers by table name.
#[derive(Debug, Default)]
struct Subscribers(Mutex<HashMap<&'static str, watch::Sender<()>>>);

impl Subscribers {
    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, table: &str) {
        if let Some(subscribers) = self.lock().get(table) {
            subscribers.send_replace(());
        }
    }

    fn notify_all(&self) {
        for subscribers in self.lock().values() {
            subscribers.send_replace(());
        }
    }
}

#[derive(Debug)]
struct Listener {
    pool: PgPool,
    subscribers: Arc<Subscribers>,
    /// Started by the first subscription.
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Receives hints. Cheap to clone; one connection listens for all clones, until the last is dropped.
#[derive(Debug, Clone)]
pub struct Hints(Arc<Listener>);

impl Hints {
    /// Creates a receiver that uses one connection of this pool.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self(Arc::new(Listener {
            pool,
            subscribers: Arc::default(),
            task: Mutex::new(None),
        }))
    }

    /// Returns a channel that changes when something may have become due in this table. Behind a pooler without LISTEN,
    /// and while the connection is down, there are no hints, and callers must poll. Call it inside a tokio runtime.
    #[must_use]
    pub fn subscribe(&self, table: &'static WorkTable) -> watch::Receiver<()> {
        let receiver = self
            .0
            .subscribers
            .lock()
            .entry(table.name)
            .or_insert_with(|| watch::Sender::new(()))
            .subscribe();
        let mut task = self.0.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.get_or_insert_with(|| {
            let listening = listen(self.0.pool.clone(), Arc::clone(&self.0.subscribers));
            AbortOnDropHandle::new(tokio::spawn(listening))
        });
        receiver
    }
}

async fn listen(pool: PgPool, subscribers: Arc<Subscribers>) {
    loop {
        if let Err(error) = relay_hints(&pool, &subscribers).await {
            tracing::debug!(%error, "can't listen for wake-up hints; workers keep polling");
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn relay_hints(pool: &PgPool, subscribers: &Subscribers) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    // Anything may have been announced before we listened, or while the connection was down.
    subscribers.notify_all();
    loop {
        match listener.try_recv().await? {
            Some(hint) => subscribers.notify(hint.payload()),
            None => subscribers.notify_all(),
        }
    }
}
