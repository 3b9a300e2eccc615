//! Hears the hints of all tables on one connection, for everybody in the process who waits for one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::CHANNEL;
use crate::lease::WorkTable;

/// How long after a failure to listen again.
const AGAIN: Duration = Duration::from_secs(1);

/// Who waits, by the name of the table.
#[derive(Debug, Default)]
struct Waiting(Mutex<HashMap<&'static str, watch::Sender<()>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, table: &str) {
        if let Some(waiting) = self.lock().get(table) {
            waiting.send_replace(());
        }
    }

    fn tell_all(&self) {
        for waiting in self.lock().values() {
            waiting.send_replace(());
        }
    }
}

#[derive(Debug)]
struct Ear {
    pool: PgPool,
    waiting: Arc<Waiting>,
    /// Listens from the first question on.
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Hints as they come in. Cheap to clone; one connection listens for all clones, until the last is gone.
#[derive(Debug, Clone)]
pub struct Hints(Arc<Ear>);

impl Hints {
    /// Hints of the database that this pool leads to; one of its connections is kept for them.
    #[must_use]
    pub fn of(pool: PgPool) -> Self {
        Self(Arc::new(Ear {
            pool,
            waiting: Arc::default(),
            task: Mutex::new(None),
        }))
    }

    /// Changes when something may have become due in this table. Behind a pooler that can't listen, and while the connection
    /// is gone, nothing is heard: polling must do. Call it inside a tokio runtime.
    #[must_use]
    pub fn about(&self, table: &'static WorkTable) -> watch::Receiver<()> {
        let receiver = self
            .0
            .waiting
            .lock()
            .entry(table.name)
            .or_insert_with(|| watch::Sender::new(()))
            .subscribe();
        let mut task = self.0.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.get_or_insert_with(|| {
            let listening = listen(self.0.pool.clone(), Arc::clone(&self.0.waiting));
            AbortOnDropHandle::new(tokio::spawn(listening))
        });
        receiver
    }
}

async fn listen(pool: PgPool, waiting: Arc<Waiting>) {
    loop {
        if let Err(error) = follow(&pool, &waiting).await {
            tracing::debug!(%error, "not listening for hints; polling goes on");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn follow(pool: &PgPool, waiting: &Waiting) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    // Whatever was announced before we listened, or while the connection was gone, must be looked for.
    waiting.tell_all();
    loop {
        match listener.try_recv().await? {
            Some(hint) => waiting.tell(hint.payload()),
            None => waiting.tell_all(),
        }
    }
}
