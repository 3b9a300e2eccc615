//! Progress as it happens: whoever watches a job shares one look at the database with all others who do.

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

/// The pause between two looks at a job of moderate size.
const PAUSE: Duration = Duration::from_millis(300);

/// Counting so many inputs takes a while: the pause grows with them.
const INPUTS_PER_PAUSE: u32 = 20_000;

type Seen = watch::Receiver<Option<Progress>>;

/// The jobs that are watched. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pool: PgPool,
    stop: CancellationToken,
    jobs: Arc<Mutex<HashMap<Uuid, Seen>>>,
}

impl Watch {
    /// Nobody watches yet. Streams end with the stop, so that they don't hold it back.
    pub fn new(pool: PgPool, stop: CancellationToken) -> Self {
        Self {
            pool,
            stop,
            jobs: Arc::default(),
        }
    }

    /// An event for each change, and a last one called `end` when the job is over.
    pub fn events(&self, job: Uuid) -> impl Stream<Item = Result<Event, axum::Error>> + use<> {
        let (seen, stop) = (self.look_at(job), self.stop.clone());
        stream::unfold(Some(seen), move |seen| {
            let stop = stop.clone();
            async move {
                let mut seen = seen?;
                stop.run_until_cancelled(seen.changed()).await?.ok()?;
                let progress = seen.borrow_and_update().clone()?;
                let over = !progress.status.is_open();
                let name = if over { "end" } else { "progress" };
                let event = Event::default().event(name).json_data(&progress);
                Some((event, (!over).then_some(seen)))
            }
        })
    }

    fn look_at(&self, job: Uuid) -> Seen {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = jobs.get(&job) {
            let mut seen = seen.clone();
            seen.mark_changed();
            return seen;
        }
        let (sender, seen) = watch::channel(None);
        jobs.insert(job, seen.clone());
        tokio::spawn(self.clone().follow(job, sender));
        seen
    }

    /// Looks until the job is over or nobody watches any more.
    async fn follow(self, job: Uuid, sender: watch::Sender<Option<Progress>>) {
        let mut pause = PAUSE;
        loop {
            match store::progress(&self.pool, job).await {
                Ok(progress) => {
                    let inputs = u32::try_from(progress.total).unwrap_or(u32::MAX);
                    pause = PAUSE * (1 + inputs / INPUTS_PER_PAUSE);
                    let over = !progress.status.is_open();
                    sender.send_if_modified(|seen| {
                        let news = seen.as_ref() != Some(&progress);
                        *seen = Some(progress);
                        news
                    });
                    if over {
                        break;
                    }
                }
                Err(error) => tracing::debug!(%error, "a job's progress can't be read now"),
            }
            if self
                .stop
                .run_until_cancelled(tokio::time::sleep(pause))
                .await
                .is_none()
            {
                break;
            }
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            // One receiver is the map's own; nobody can come while the map is locked.
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
