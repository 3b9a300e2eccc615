//! The message log: replaying it to a group, and dropping old segments.

use std::time::Duration;

use postrider::transport::{DELIVERIES, MessageId};
use postrider::{Error, Result};
use sqlx::types::time::OffsetDateTime;

use super::PostgresTransport;

const REPLAY_RANGE: &str = "select after, until from postrider.replay_range($1, $2, $3)";
const REPLAY_BATCH: &str =
    "select reached, deliveries from postrider.replay_piece($1, $2, $3, $4, $5)";
const START_SEGMENT: &str = "select postrider.turn_segment(make_interval(secs => $1))";
const DROP_SEGMENTS: &str = "select postrider.drop_segments(make_interval(secs => $1))";

/// Positions per transaction of a replay: each key in it takes a lock.
const BATCH_SIZE: i32 = 500;

/// Where a replay starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayFrom {
    /// With the first message published at this time or later.
    Time(OffsetDateTime),
    /// With this message.
    Message(MessageId),
}

/// How long the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Duration of a segment.
    pub segment: Duration,
    /// A segment is dropped once all its messages are older than this and no delivery refers to it.
    pub keep: Duration,
}

impl Default for Retention {
    /// A segment a day, kept for a week.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            segment: DAY,
            keep: 7 * DAY,
        }
    }
}

/// What a retention run did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retained {
    /// The segment that was started.
    pub started: Option<i32>,
    /// The segments that were dropped.
    pub dropped: Vec<i32>,
}

impl PostgresTransport {
    /// Delivers the log's messages of this topic to the group again, except those that it has yet to finish. Returns the number
    /// of new deliveries.
    ///
    /// A consumer with an inbox ignores messages that it has seen: to repeat the effects, use a new group or clear its inbox. If
    /// this fails halfway, repeat it: unfinished deliveries aren't duplicated.
    pub async fn replay(&self, group: &str, topic: &str, from: ReplayFrom) -> Result<u64> {
        let (since, id) = match from {
            ReplayFrom::Time(since) => (Some(since), None),
            ReplayFrom::Message(id) => (None, Some(id.uuid())),
        };
        let (after, until): (Option<i64>, Option<i64>) = sqlx::query_as(REPLAY_RANGE)
            .bind(topic)
            .bind(since)
            .bind(id)
            .fetch_one(&self.pool)
            .await?;
        let (Some(mut after), Some(until)) = (after, until) else {
            return Ok(0);
        };
        let mut delivered = 0;
        while after < until {
            let (reached, deliveries): (i64, i64) = sqlx::query_as(REPLAY_BATCH)
                .bind(group)
                .bind(topic)
                .bind(after)
                .bind(until)
                .bind(BATCH_SIZE)
                .fetch_one(&self.pool)
                .await?;
            after = reached;
            delivered += deliveries.unsigned_abs();
        }
        self.waker.wake(&DELIVERIES);
        tracing::info!(group, topic, delivered, "replayed the log");
        Ok(delivered)
    }

    /// Starts a new segment if it's time, and drops old ones. Run it every few minutes on a leader; concurrent runs are safe.
    ///
    /// A segment that an open transaction locks is left for the next run.
    pub async fn retain(&self, retention: Retention) -> Result<Retained> {
        let started = sqlx::query_scalar(START_SEGMENT)
            .bind(retention.segment.as_secs_f64())
            .fetch_one(&self.pool)
            .await;
        let dropped = sqlx::query_scalar(DROP_SEGMENTS)
            .bind(retention.keep.as_secs_f64())
            .fetch_one(&self.pool)
            .await;
        Ok(Retained {
            started: unless_busy(started)?,
            dropped: unless_busy(dropped)?,
        })
    }
}

fn unless_busy<T: Default>(result: Result<T, sqlx::Error>) -> Result<T> {
    let code = |error: &sqlx::Error| Some(error.as_database_error()?.code()?.into_owned());
    match result {
        Err(error) if code(&error).as_deref() == Some("55P03") => {
            tracing::debug!("the log is locked; retention continues at its next run");
            Ok(T::default())
        }
        result => result.map_err(Error::from),
    }
}
