//! Progress streams: all clients that watch a job share one database query.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::response::sse::Event;
use futures_util::{Stream, stream};
use sqlx::PgPool;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{model::Progress, store};

/// Interval between two queries of a job of moderate size.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Counting inputs takes a while: the interval grows by one for this many.
const INPUTS_PER_INTERVAL: u32 = 20_000;

type ProgressReceiver = watch::Receiver<Option<Progress>>;

/// The watched jobs. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ProgressStreams {
    pool: PgPool,
    stop: CancellationToken,
    jobs: Arc<Mutex<HashMap<Uuid, ProgressReceiver>>>,
}

impl ProgressStreams {
    /// Streams end with `stop`, so that they don't delay a shutdown.
    pub fn new(pool: PgPool, stop: CancellationToken) -> Self {
        Self {
            pool,
            stop,
            jobs: Arc::default(),
        }
    }

    /// An event for each change, and a last one called `end` when the job is finished.
    pub fn events(&self, job: Uuid) -> impl Stream<Item = Result<Event, axum::Error>> + use<> {
        let (receiver, stop) = (self.subscribe(job), self.stop.clone());
        stream::unfold(Some(receiver), move |receiver| {
            let stop = stop.clone();
            async move {
                let mut receiver = receiver?;
                stop.run_until_cancelled(receiver.changed()).await?.ok()?;
                let progress = receiver.borrow_and_update().clone()?;
                let finished = !progress.status.is_open();
                let name = if finished { "end" } else { "progress" };
                let event = Event::default().event(name).json_data(&progress);
                Some((event, (!finished).then_some(receiver)))
            }
        })
    }

    fn subscribe(&self, job: Uuid) -> ProgressReceiver {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(receiver) = jobs.get(&job) {
            let mut receiver = receiver.clone();
            receiver.mark_changed();
            return receiver;
        }
        let (sender, receiver) = watch::channel(None);
        jobs.insert(job, receiver.clone());
        tokio::spawn(self.clone().poll(job, sender));
        receiver
    }

    /// Queries until the job is finished or nobody watches it.
    async fn poll(self, job: Uuid, sender: watch::Sender<Option<Progress>>) {
        let mut interval = POLL_INTERVAL;
        loop {
            match store::progress(&self.pool, job).await {
                Ok(progress) => {
                    let inputs = u32::try_from(progress.total).unwrap_or(u32::MAX);
                    interval = POLL_INTERVAL * (1 + inputs / INPUTS_PER_INTERVAL);
                    let finished = !progress.status.is_open();
                    sender.send_if_modified(|last| {
                        let changed = last.as_ref() != Some(&progress);
                        *last = Some(progress);
                        changed
                    });
                    if finished {
                        break;
                    }
                }
                Err(error) => tracing::debug!(%error, "reading a job's progress failed; retrying"),
            }
            if self
                .stop
                .run_until_cancelled(tokio::time::sleep(interval))
                .await
                .is_none()
            {
                break;
            }
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            // One receiver is the map's own, and nobody can subscribe while the map is locked.
            if sender.receiver_count() <= 1 {
                jobs.remove(&job);
                return;
            }
        }
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&job);
    }
}
