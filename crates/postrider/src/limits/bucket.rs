//! A token bucket without tokens: it remembers one moment, the one at which it will be full again.
//!
//! That is exact in whole nanoseconds, needs no timer, and no rounding adds up.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// So many calls per second, and so many at once after a rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Rate {
    per_second: f64,
    burst: u32,
}

/// A rate that can't be kept.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum InvalidRate {
    /// Not a usable number of calls.
    #[error("the rate is {0} per second; it must be more than 0.00001 and at most a million")]
    PerSecond(f64),
    /// Nothing would ever go.
    #[error("the burst is 0; at least one call must be able to go")]
    NoBurst,
}

/// The written form: `{ per_second = 20, burst = 5 }`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    per_second: f64,
    #[serde(default = "one")]
    burst: u32,
}

const fn one() -> u32 {
    1
}

impl Rate {
    /// A rate, if its numbers make sense.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, InvalidRate> {
        if !(0.000_01..=1_000_000.0).contains(&per_second) {
            return Err(InvalidRate::PerSecond(per_second));
        }
        if burst == 0 {
            return Err(InvalidRate::NoBurst);
        }
        Ok(Self { per_second, burst })
    }

    /// The time in which one call's worth flows in.
    fn interval(self) -> Duration {
        Duration::from_secs_f64(1.0 / self.per_second)
    }
}

impl TryFrom<Form> for Rate {
    type Error = InvalidRate;

    fn try_from(form: Form) -> Result<Self, InvalidRate> {
        Self::new(form.per_second, form.burst)
    }
}

impl From<Rate> for Form {
    fn from(rate: Rate) -> Self {
        Self {
            per_second: rate.per_second,
            burst: rate.burst,
        }
    }
}

/// The bucket of one destination; the caller brings the time.
#[derive(Debug, Clone)]
pub struct Bucket {
    interval: Duration,
    /// How far ahead of now the full moment may lie while a call still goes: all of the burst but one call.
    slack: Duration,
    /// When the bucket will be full; none until the first call.
    full_at: Option<Instant>,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        let interval = rate.interval();
        Self {
            interval,
            slack: interval.saturating_mul(rate.burst - 1),
            full_at: None,
        }
    }

    /// Takes one call's worth, or says how long to wait for it.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let ahead = full_at - now;
        if ahead > self.slack {
            return Err(ahead - self.slack);
        }
        self.full_at = Some(full_at + self.interval);
        Ok(())
    }

    /// Has everything flowed in again?
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|at| at <= now)
    }
}
