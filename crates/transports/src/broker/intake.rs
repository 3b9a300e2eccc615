//! The intake moves messages from the broker into the database, in order, and acknowledges them only after the commit.
//!
//! After a crash before the commit, the broker redelivers. After a crash between commit and acknowledgement it redelivers
//! too, and the database recognises the duplicates. Two concurrent intakes are safe for the same reason.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use postrider::Error;
use postrider::internal::database_is_transient;
use postrider::transport::{Message, TransportError};
use postrider_crashpoint as crashpoint;
use tokio_util::sync::CancellationToken;

use super::envelope::json_string;
use super::{Options, Source, transport_error};
use crate::PostgresTransport;

const FETCH_WAIT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// How long fetching pauses before the backlog is counted again.
const BACKLOG_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The backlog is counted at most once per this number of messages.
const MESSAGES_PER_COUNT: u64 = 1_000;

/// Moves one source's messages to one group.
pub(super) struct Intake {
    pub source: Box<dyn Source>,
    /// Fetched but not stored yet. Nothing else is fetched until they are stored, or it would overtake them.
    pub pending: Vec<Message>,
    /// Set during calls of the source. A panic there leaves it in an unknown state.
    pub source_busy: bool,
    pub local: PostgresTransport,
    pub group: String,
    pub broker: &'static str,
    pub options: Options,
}

impl Intake {
    /// Runs until stopped, and retries while the broker or the database is unavailable. Returns an error if the source panicked:
    /// the caller then needs a new one.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Error> {
        let mut pause = FIRST_PAUSE;
        let count_every = MESSAGES_PER_COUNT.min(u64::from(self.options.backlog / 4));
        let mut since_count = count_every;
        while !stop.is_cancelled() {
            let step = async {
                if since_count >= count_every {
                    self.wait_for_capacity().await?;
                    since_count = 0;
                }
                self.step().await
            };
            let step = AssertUnwindSafe(step).catch_unwind();
            // Dropping a step is like a crash: it costs a redelivery, no more.
            let Some(done) = stop.run_until_cancelled(step).await else {
                return Ok(());
            };
            let done = match done {
                Ok(done) => done,
                Err(_) if self.source_busy => return Err(Error::Panicked("a broker's source")),
                Err(_) => Err(self.error(Error::Panicked("the intake"))),
            };
            match done {
                Ok(count) => {
                    since_count += count;
                    pause = FIRST_PAUSE;
                }
                Err(error) => {
                    tracing::warn!(%error, group = self.group, broker = self.broker, "intake paused; retrying");
                    stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
        Ok(())
    }

    /// Fetches, stores and acknowledges one batch. Returns its size.
    async fn step(&mut self) -> Result<u64, TransportError> {
        if self.pending.is_empty() {
            self.source_busy = true;
            let fetched = self.source.fetch(FETCH_WAIT).await;
            self.source_busy = false;
            self.pending = fetched?;
        }
        if self.pending.is_empty() {
            return Ok(0);
        }
        self.crash_point(crashpoint::point!("intake.before_commit"))?;
        let stored = self.store(&self.pending).await;
        let new = stored.map_err(|error| self.database_error(error))?;
        let fetched = std::mem::take(&mut self.pending).len() as u64;
        let count = |outcome, count| {
            metrics::counter!("postrider_taken_in_total", "group" => self.group.clone(), "outcome" => outcome)
                .increment(count);
        };
        count("new", new);
        count("duplicate", fetched - new);
        self.crash_point(crashpoint::point!("intake.before_acknowledging"))?;
        self.source_busy = true;
        let acknowledged = self.source.acknowledge().await;
        self.source_busy = false;
        acknowledged?;
        Ok(fetched)
    }

    /// Stores the batch and returns the number of messages that are new to the group.
    async fn store(&self, batch: &[Message]) -> Result<u64, sqlx::Error> {
        match self.local.store_incoming(&self.group, batch).await {
            Err(error) if !database_is_transient(&error) => {
                tracing::warn!(%error, group = self.group, "the database rejects a message of this batch; storing one at a time");
                self.store_one_by_one(batch).await
            }
            done => done,
        }
    }

    /// A message that the database rejects is stored with its body as a JSON string, for the handler to fail on and people
    /// to inspect.
    async fn store_one_by_one(&self, batch: &[Message]) -> Result<u64, sqlx::Error> {
        let mut new = 0;
        for message in batch {
            let one = std::slice::from_ref(message);
            new += match self.local.store_incoming(&self.group, one).await {
                Err(error) if !database_is_transient(&error) => {
                    let body = json_string(&message.payload);
                    let bare = Message::new(message.id, message.topic.clone(), body);
                    self.local.store_incoming(&self.group, &[bare]).await?
                }
                done => done?,
            };
        }
        Ok(new)
    }

    /// Backpressure: once the backlog is full, the broker keeps the rest until half of it is handled.
    async fn wait_for_capacity(&mut self) -> Result<(), TransportError> {
        let max = self.options.backlog;
        if self.backlog().await? < u64::from(max) {
            return Ok(());
        }
        tracing::info!(
            group = self.group,
            backlog = max,
            "intake paused: the backlog is full; resuming when half of it is handled"
        );
        loop {
            self.source_busy = true;
            self.source.pause(BACKLOG_POLL_INTERVAL).await;
            self.source_busy = false;
            if self.backlog().await? < u64::from(max.div_ceil(2)) {
                return Ok(());
            }
        }
    }

    async fn backlog(&self) -> Result<u64, TransportError> {
        let count = self.local.backlog(&self.group, self.options.backlog).await;
        count.map_err(|error| self.database_error(error))
    }

    fn database_error(&self, error: sqlx::Error) -> TransportError {
        self.error(Error::Database(error))
    }

    fn error(&self, error: Error) -> TransportError {
        TransportError::from_error(self.broker, error)
    }

    fn crash_point(&self, reached: Result<(), crashpoint::Injected>) -> Result<(), TransportError> {
        reached.map_err(|injected| transport_error(self.broker, injected.into(), false))
    }
}
