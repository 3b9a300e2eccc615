//! The intake: from the broker into the database, in order, and only then acknowledged.
//!
//! The crash between any two steps: before the commit the broker delivers again; between commit and acknowledgement it
//! delivers again too, and the database recognises what it has. Two intakes at once are safe for the same reason.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use postrider::Error;
use postrider::error::database_is_transient;
use postrider::transport::{Message, TransportError};
use postrider_crashpoint as crashpoint;
use tokio_util::sync::CancellationToken;

use super::envelope::as_text;
use super::{Cause, Options, Source};
use crate::PostgresTransport;

const WAIT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long the broker is left alone before the backlog is looked at again.
const REST: Duration = Duration::from_millis(250);
/// The backlog is counted once in so many messages at most.
const COUNT_EVERY: u64 = 1_000;

/// Brings one source's messages to one group.
pub(super) struct Intake {
    pub source: Box<dyn Source>,
    /// Fetched and not stored yet. Nothing is fetched behind it, or it would be overtaken.
    pub pending: Vec<Message>,
    /// Is the source at work? A panic there leaves it in a state that nobody knows.
    pub asking: bool,
    pub local: PostgresTransport,
    pub group: String,
    pub broker: &'static str,
    pub options: Options,
}

impl Intake {
    /// Works until told to stop. Waits for a broker or a database that is away. An error if its source panicked: then it takes
    /// another one.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Error> {
        let mut pause = FIRST_PAUSE;
        let count_every = COUNT_EVERY.min(u64::from(self.options.backlog / 4));
        let mut since_count = count_every;
        while !stop.is_cancelled() {
            let step = async {
                if since_count >= count_every {
                    self.make_room().await?;
                    since_count = 0;
                }
                self.step().await
            };
            let step = AssertUnwindSafe(step).catch_unwind();
            // A step that is dropped is a crash, which costs nothing but a redelivery.
            let Some(done) = stop.run_until_cancelled(step).await else {
                return Ok(());
            };
            let done = match done {
                Ok(done) => done,
                Err(_) if self.asking => return Err(Error::Panicked("a broker's source")),
                Err(_) => Err(self.of_engine(Error::Panicked("taking in"))),
            };
            match done {
                Ok(count) => {
                    since_count += count;
                    pause = FIRST_PAUSE;
                }
                Err(error) => {
                    tracing::warn!(%error, group = self.group, broker = self.broker, "taking in waits");
                    stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        Ok(())
    }

    /// How many came.
    async fn step(&mut self) -> Result<u64, TransportError> {
        if self.pending.is_empty() {
            self.asking = true;
            let fetched = self.source.fetch(WAIT).await;
            self.asking = false;
            self.pending = fetched?;
        }
        if self.pending.is_empty() {
            return Ok(0);
        }
        self.point(crashpoint::point!("intake.before_commit"))?;
        let stored = self.take_in(&self.pending).await;
        let new = stored.map_err(|error| self.trouble(error))?;
        let came = std::mem::take(&mut self.pending).len() as u64;
        let count = |outcome, count| {
            metrics::counter!("postrider_taken_in_total", "group" => self.group.clone(), "outcome" => outcome)
                .increment(count);
        };
        count("new", new);
        count("duplicate", came - new);
        self.point(crashpoint::point!("intake.before_acknowledging"))?;
        self.asking = true;
        let acknowledged = self.source.acknowledge().await;
        self.asking = false;
        acknowledged?;
        Ok(came)
    }

    async fn take_in(&self, batch: &[Message]) -> Result<u64, sqlx::Error> {
        match self.local.take_in(&self.group, batch).await {
            Err(error) if !database_is_transient(&error) => {
                tracing::warn!(%error, group = self.group, "a message can't be stored as it is");
                self.one_by_one(batch).await
            }
            done => done,
        }
    }

    /// Somebody in this batch can't be stored: it goes in with its body as a text, for people to look at.
    async fn one_by_one(&self, batch: &[Message]) -> Result<u64, sqlx::Error> {
        let mut new = 0;
        for message in batch {
            let one = std::slice::from_ref(message);
            new += match self.local.take_in(&self.group, one).await {
                Err(error) if !database_is_transient(&error) => {
                    let bare =
                        Message::new(message.id, message.topic.clone(), as_text(&message.payload));
                    self.local.take_in(&self.group, &[bare]).await?
                }
                done => done?,
            };
        }
        Ok(new)
    }

    /// Back-pressure: while too much waits here, the broker keeps the rest.
    async fn make_room(&mut self) -> Result<(), TransportError> {
        let most = self.options.backlog;
        let backlog =
            async |local: &PostgresTransport, group: &str| local.backlog(group, most).await;
        let full = |count: u64, limit: u32| count >= u64::from(limit);
        let count = backlog(&self.local, &self.group).await;
        if !full(count.map_err(|error| self.trouble(error))?, most) {
            return Ok(());
        }
        tracing::info!(
            group = self.group,
            most,
            "the broker keeps the rest until half are handled"
        );
        loop {
            self.asking = true;
            self.source.rest(REST).await;
            self.asking = false;
            let count = backlog(&self.local, &self.group).await;
            if !full(
                count.map_err(|error| self.trouble(error))?,
                most.div_ceil(2),
            ) {
                return Ok(());
            }
        }
    }

    fn trouble(&self, error: sqlx::Error) -> TransportError {
        self.of_engine(Error::Database(error))
    }

    fn of_engine(&self, error: Error) -> TransportError {
        TransportError::of_engine(self.broker, error)
    }

    fn point(&self, reached: Result<(), crashpoint::Injected>) -> Result<(), TransportError> {
        reached.map_err(|injected| TransportError::Unavailable {
            transport: self.broker,
            source: Cause::from(injected),
        })
    }
}
