//! Retry policies: when a failed item is tried again.
//!
//! A policy is a pure function of the number of attempts made and a jitter sample: no clock, no randomness inside, so
//! that every delay can be explained afterwards. Whatever the numbers, the arithmetic saturates and the result never
//! exceeds [`MAX_DELAY`].
//!
//! ```
//! use std::time::Duration;
//! use postrider::RetryPolicy;
//!
//! let policy = RetryPolicy::exponential(Duration::from_secs(5), Duration::from_secs(600), 3)?;
//! assert_eq!(policy.delay(1, 0.5), Some(Duration::from_secs(5)));
//! assert_eq!(policy.delay(2, 0.5), Some(Duration::from_secs(10)));
//! assert_eq!(policy.delay(3, 0.5), None, "the third attempt was the last");
//! # Ok::<(), postrider::retry::PolicyError>(())
//! ```

mod config;

use std::time::Duration;

/// Maximum delay (ten years): anything longer is a mistake, and a timestamp must be able to hold it.
pub const MAX_DELAY: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// Maximum number of attempts: the narrowest column that counts them must be able to hold it.
pub const MAX_ATTEMPTS: u32 = 30_000;

/// How delays grow from attempt to attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Backoff {
    /// `initial × multiplier^(n-1)`, at most `cap`, then spread by ± `jitter` (a fraction between 0 and 1).
    Exponential {
        /// Delay after the first failure.
        initial: Duration,
        /// Factor from one delay to the next, at least 1.
        multiplier: f64,
        /// Maximum delay, jitter included.
        cap: Duration,
        /// Fraction by which a delay may be shorter or longer: 0.2 is ± 20 %.
        jitter: f64,
    },
    /// One delay per failure; the last repeats.
    Table(Vec<Duration>),
    /// The same delay every time.
    Fixed(Duration),
    /// No second attempt.
    None,
}

/// How often and how soon a failed item is retried. Only valid policies exist.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "config::Form", into = "config::Form")]
pub struct RetryPolicy {
    backoff: Backoff,
    max_attempts: u32,
}

/// Why a policy is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// The multiplier isn't a usable number.
    #[error("the multiplier is {0}; it must be a finite number, 1 or more")]
    Multiplier(f64),
    /// The jitter isn't a fraction.
    #[error("the jitter is {0}; it must be between 0 and 1, where 0.2 means ± 20 %")]
    Jitter(f64),
    /// A delay is too long.
    #[error("{name} is {found:?}; the maximum is ten years")]
    TooLong {
        /// Name of the value.
        name: &'static str,
        /// The value.
        found: Duration,
    },
    /// The cap is shorter than the first delay.
    #[error("the cap ({cap:?}) is shorter than the first delay ({initial:?}); raise the cap")]
    CapBelowInitial {
        /// The first delay.
        initial: Duration,
        /// The cap.
        cap: Duration,
    },
    /// The table has no delay.
    #[error("the table of delays is empty; give at least one delay, or use the strategy \"none\"")]
    EmptyTable,
    /// The number of attempts is out of range.
    #[error("max_attempts is {0}; it must be between 1 and {MAX_ATTEMPTS}")]
    Attempts(u32),
}

impl RetryPolicy {
    /// Creates a policy with any backoff. `max_attempts` includes the first attempt.
    pub fn new(backoff: Backoff, max_attempts: u32) -> Result<Self, PolicyError> {
        if !(1..=MAX_ATTEMPTS).contains(&max_attempts) {
            return Err(PolicyError::Attempts(max_attempts));
        }
        match &backoff {
            Backoff::Exponential {
                initial,
                multiplier,
                cap,
                jitter,
            } => {
                if !multiplier.is_finite() || *multiplier < 1.0 {
                    return Err(PolicyError::Multiplier(*multiplier));
                }
                if !(0.0..=1.0).contains(jitter) {
                    return Err(PolicyError::Jitter(*jitter));
                }
                bounded("initial", *initial)?;
                bounded("cap", *cap)?;
                if cap < initial {
                    return Err(PolicyError::CapBelowInitial {
                        initial: *initial,
                        cap: *cap,
                    });
                }
            }
            Backoff::Table(delays) => {
                if delays.is_empty() {
                    return Err(PolicyError::EmptyTable);
                }
                delays
                    .iter()
                    .try_for_each(|delay| bounded("a delay of the table", *delay))?;
            }
            Backoff::Fixed(delay) => bounded("the delay", *delay)?,
            Backoff::None => return Ok(Self::none()),
        }
        Ok(Self {
            backoff,
            max_attempts,
        })
    }

    /// Doubling delays with ± 20 % jitter.
    pub fn exponential(
        initial: Duration,
        cap: Duration,
        max_attempts: u32,
    ) -> Result<Self, PolicyError> {
        let backoff = Backoff::Exponential {
            initial,
            multiplier: 2.0,
            cap,
            jitter: 0.2,
        };
        Self::new(backoff, max_attempts)
    }

    /// These delays; the last repeats.
    pub fn table(delays: impl Into<Vec<Duration>>, max_attempts: u32) -> Result<Self, PolicyError> {
        Self::new(Backoff::Table(delays.into()), max_attempts)
    }

    /// The same delay every time.
    pub fn fixed(delay: Duration, max_attempts: u32) -> Result<Self, PolicyError> {
        Self::new(Backoff::Fixed(delay), max_attempts)
    }

    /// One attempt only.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            backoff: Backoff::None,
            max_attempts: 1,
        }
    }

    /// How delays grow.
    #[must_use]
    pub const fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// Maximum number of attempts, the first included.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Whether all attempts are used up once `attempt` of them were made.
    #[must_use]
    pub const fn is_exhausted(&self, attempt: u32) -> bool {
        attempt >= self.max_attempts()
    }

    /// The delay after the failure of attempt number `attempt` (the first is 1), or None if it was the last.
    ///
    /// `jitter_sample` is a random number between 0 and 1 supplied by the caller; 0.5 means no jitter. Values outside
    /// are clamped, and NaN counts as 0.5.
    #[must_use]
    pub fn delay(&self, attempt: u32, jitter_sample: f64) -> Option<Duration> {
        let attempt = attempt.max(1);
        if self.is_exhausted(attempt) {
            return None;
        }
        match &self.backoff {
            Backoff::Exponential {
                initial,
                multiplier,
                cap,
                jitter,
            } => {
                let base = grown(*initial, *multiplier, attempt - 1, *cap);
                Some(spread(base, *jitter, jitter_sample).min(*cap))
            }
            Backoff::Table(delays) => {
                let index = usize::try_from(attempt - 1).unwrap_or(usize::MAX);
                delays.get(index).or(delays.last()).copied()
            }
            Backoff::Fixed(delay) => Some(*delay),
            Backoff::None => None,
        }
    }
}

impl Default for RetryPolicy {
    /// Five seconds, doubling up to ten minutes, ± 20 %; ten attempts: about forty minutes in total.
    fn default() -> Self {
        Self {
            backoff: Backoff::Exponential {
                initial: Duration::from_secs(5),
                multiplier: 2.0,
                cap: Duration::from_secs(600),
                jitter: 0.2,
            },
            max_attempts: 10,
        }
    }
}

fn bounded(name: &'static str, found: Duration) -> Result<(), PolicyError> {
    if found > MAX_DELAY {
        return Err(PolicyError::TooLong { name, found });
    }
    Ok(())
}

/// `initial × multiplier^steps`, at most `cap`.
fn grown(initial: Duration, multiplier: f64, steps: u32, cap: Duration) -> Duration {
    let factor = multiplier.powi(i32::try_from(steps).unwrap_or(i32::MAX));
    scaled(initial, factor).min(cap)
}

/// Between `(1 - jitter)` and `(1 + jitter)` times `base`.
fn spread(base: Duration, jitter: f64, sample: f64) -> Duration {
    let sample = if sample.is_nan() {
        0.5
    } else {
        sample.clamp(0.0, 1.0)
    };
    scaled(base, 1.0 + jitter * (2.0 * sample - 1.0))
}

/// A product that saturates at [`MAX_DELAY`]; infinity times zero is zero.
fn scaled(duration: Duration, factor: f64) -> Duration {
    if duration.is_zero() {
        return duration;
    }
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor)
        .unwrap_or(MAX_DELAY)
        .min(MAX_DELAY)
}
