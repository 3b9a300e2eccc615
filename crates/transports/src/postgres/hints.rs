//! Hints that something was delivered: one listening connection for all consumers of a transport. Polling is the truth; a
//! lost hint costs a poll interval.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_engine::transport::DELIVERIES;
use postrider_engine::wake::CHANNEL;
use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

const AGAIN: Duration = Duration::from_secs(1);

/// The listener, started with the first consumer.
#[derive(Debug)]
pub(super) struct Hints {
    side: PgPool,
    sender: watch::Sender<()>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Hints {
    pub fn new(side: PgPool) -> Self {
        Self {
            side,
            sender: watch::Sender::new(()),
            task: Mutex::new(None),
        }
    }

    /// Begins to listen, if nobody does yet.
    pub fn listen(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.is_none() {
            let (side, sender) = (self.side.clone(), self.sender.clone());
            *task = Some(AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    if let Err(error) = follow(&side, &sender).await {
                        tracing::debug!(%error, "not listening for deliveries; polling goes on");
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            })));
        }
    }

    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.sender.subscribe()
    }
}

async fn follow(side: &PgPool, sender: &watch::Sender<()>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(side).await?;
    listener.listen(CHANNEL).await?;
    // What was announced before we listened, or while the connection was gone, must be looked for.
    sender.send_replace(());
    loop {
        match listener.try_recv().await? {
            Some(hint) if hint.payload() != DELIVERIES.name => {}
            Some(_) | None => {
                sender.send_replace(());
            }
        }
    }
}
