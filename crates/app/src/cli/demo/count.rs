//! The count at the end. It leans on nothing that the engine promises: what was accepted is known from the enqueue, what
//! was done from a log without unique keys.

use serde::Serialize;
use sqlx::PgPool;

use crate::cli::output::{Output, Tone};

/// What came of it all.
#[derive(Debug, Default, Serialize)]
pub struct Count {
    /// Letters whose acceptance was committed.
    pub accepted: i64,
    /// Letters delivered.
    pub done: i64,
    /// Attempts that failed and were repeated.
    pub retried: i64,
    /// Letters that a killed worker held, and that others took over.
    pub recovered: i64,
    /// Letters that were dead when the work had settled; redriven since.
    pub dead: i64,
    /// Accepted and neither done nor waiting.
    pub lost: i64,
    /// Delivered more than once.
    pub done_twice: i64,
}

const DONE: &str =
    "select count(distinct letter), count(*) - count(distinct letter) from demo.delivered";
const RETRIED: &str = "select count(*) from postrider.attempt where outcome = 'retry'";
const LEFT: &str = "select count(*) from postrider.outbox";

impl Count {
    /// Counts what the database holds now.
    pub async fn take(
        pool: &PgPool,
        accepted: i64,
        recovered: i64,
        dead: i64,
    ) -> Result<Self, sqlx::Error> {
        let (done, done_twice): (i64, i64) = sqlx::query_as(DONE).fetch_one(pool).await?;
        let left: i64 = sqlx::query_scalar(LEFT).fetch_one(pool).await?;
        let retried = sqlx::query_scalar(RETRIED).fetch_one(pool).await?;
        let lost = accepted - done - left;
        Ok(Self {
            accepted,
            done,
            retried,
            recovered,
            dead,
            lost,
            done_twice,
        })
    }

    /// Is everything as promised?
    pub fn is_right(&self) -> bool {
        self.done == self.accepted && self.lost == 0 && self.done_twice == 0
    }

    /// For people.
    pub fn table(&self, output: &Output) -> String {
        let wanted_zero = |n: i64| if n == 0 { Tone::Good } else { Tone::Bad };
        let all_done = if self.done == self.accepted {
            Tone::Good
        } else {
            Tone::Bad
        };
        let rows = [
            ("accepted", self.accepted, None),
            ("done", self.done, Some(all_done)),
            ("retried", self.retried, None),
            ("recovered", self.recovered, None),
            ("dead, then redriven", self.dead, None),
            ("lost", self.lost, Some(wanted_zero(self.lost))),
            (
                "done twice",
                self.done_twice,
                Some(wanted_zero(self.done_twice)),
            ),
        ];
        let line = |(name, n, tone): (&str, i64, Option<Tone>)| {
            let figure = format!("{n:>8}");
            let figure = tone.map_or(figure.clone(), |tone| output.paint(tone, &figure));
            format!("  {name:<20} {figure}\n")
        };
        format!("\n{}", rows.map(line).concat())
    }
}
