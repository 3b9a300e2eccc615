//! The retained log: serving a group again from some point on, and letting go of what is old.

use std::time::Duration;

use postrider::transport::{DELIVERIES, MessageId};
use postrider::{Error, Result};
use sqlx::types::time::OffsetDateTime;

use super::PostgresTransport;

const RANGE: &str = "select after, until from postrider.replay_range($1, $2, $3)";
const PIECE: &str = "select reached, deliveries from postrider.replay_piece($1, $2, $3, $4, $5)";
const TURN: &str = "select postrider.turn_segment(make_interval(secs => $1))";
const DROP: &str = "select postrider.drop_segments(make_interval(secs => $1))";

/// Positions per transaction of a replay: each key in it takes a lock.
const MOST: i32 = 500;

/// Where a replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// With what was published at this time or later.
    Time(OffsetDateTime),
    /// With this message.
    Message(MessageId),
}

/// How the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// A new segment is begun after this long.
    pub segment: Duration,
    /// A segment is dropped whole once all its messages are older than this and no delivery refers to it.
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

/// What a round of retention did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The segment that was begun.
    pub begun: Option<i32>,
    /// The segments that were dropped.
    pub dropped: Vec<i32>,
}

impl PostgresTransport {
    /// Delivers to the group again what the log holds of this topic from here on; what it has yet to finish is left out.
    /// Returns how many deliveries that made.
    ///
    /// A consumer with an inbox recognises what it had before: use a new group, or forget its inbox, if the effects
    /// are to happen again. If this fails half-way, repeat it: what was delivered and not finished is not doubled.
    pub async fn replay(&self, group: &str, topic: &str, from: From) -> Result<u64> {
        let (since, id) = match from {
            From::Time(since) => (Some(since), None),
            From::Message(id) => (None, Some(id.uuid())),
        };
        let (after, until): (Option<i64>, Option<i64>) = sqlx::query_as(RANGE)
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
            let (reached, deliveries): (i64, i64) = sqlx::query_as(PIECE)
                .bind(group)
                .bind(topic)
                .bind(after)
                .bind(until)
                .bind(MOST)
                .fetch_one(&self.pool)
                .await?;
            after = reached;
            delivered += deliveries.unsigned_abs();
        }
        self.waker.wake(&DELIVERIES);
        tracing::info!(group, topic, delivered, "replayed");
        Ok(delivered)
    }

    /// Begins a new segment if it is time, and drops old ones. Run it every few minutes, by a leader; twice at once is safe.
    ///
    /// What can't be had at once because a transaction is open is left for the next round.
    pub async fn retain(&self, retention: Retention) -> Result<Kept> {
        let begun = sqlx::query_scalar(TURN)
            .bind(retention.segment.as_secs_f64())
            .fetch_one(&self.pool)
            .await;
        let dropped = sqlx::query_scalar(DROP)
            .bind(retention.keep.as_secs_f64())
            .fetch_one(&self.pool)
            .await;
        Ok(Kept {
            begun: unless_busy(begun)?,
            dropped: unless_busy(dropped)?,
        })
    }
}

fn unless_busy<T: Default>(result: Result<T, sqlx::Error>) -> Result<T> {
    let code = |error: &sqlx::Error| Some(error.as_database_error()?.code()?.into_owned());
    match result {
        Err(error) if code(&error).as_deref() == Some("55P03") => {
            tracing::debug!("the log is in use; retention waits for its next round");
            Ok(T::default())
        }
        result => result.map_err(Error::from),
    }
}
