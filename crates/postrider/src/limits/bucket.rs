//! A token bucket that stores one moment: when it will be full again.
//!
//! That is exact in whole nanoseconds, needs no timer, and accumulates no rounding.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A number of calls per second, and a burst after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Rate {
    per_second: f64,
    burst: u32,
}

/// Why a rate is invalid.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum InvalidRate {
    /// The rate is out of range.
    #[error("the rate is {0} per second; it must be between 0.00001 and 1000000")]
    PerSecond(f64),
    /// No call could ever be made.
    #[error("the burst is 0; it must be at least 1")]
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
    /// Creates a rate.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, InvalidRate> {
        if !(0.000_01..=1_000_000.0).contains(&per_second) {
            return Err(InvalidRate::PerSecond(per_second));
        }
        if burst == 0 {
            return Err(InvalidRate::NoBurst);
        }
        Ok(Self { per_second, burst })
    }

    /// The interval between two calls at this rate.
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

/// The bucket of one destination; the caller supplies the time.
#[derive(Debug, Clone)]
pub struct Bucket {
    interval: Duration,
    /// How far in the future that moment may be for a call to be admitted: the whole burst but one call.
    slack: Duration,
    /// When the bucket will be full; None until the first call.
    full_at: Option<Instant>,
}

impl Bucket {
    /// Creates a full bucket.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        let interval = rate.interval();
        Self {
            interval,
            slack: interval.saturating_mul(rate.burst - 1),
            full_at: None,
        }
    }

    /// Takes one token, or returns how long to wait for it.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let ahead = full_at - now;
        if ahead > self.slack {
            return Err(ahead - self.slack);
        }
        self.full_at = Some(full_at + self.interval);
        Ok(())
    }
}
