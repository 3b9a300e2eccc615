//! The breaker as a pure state machine: the caller supplies the time.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of consecutive signs of unavailability that open the breaker.
    pub threshold: std::num::NonZeroU32,
    /// How long the breaker stays open.
    #[serde(with = "crate::internal::duration")]
    pub open_for: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threshold: std::num::NonZeroU32::MIN.saturating_add(19),
            open_for: Duration::from_secs(10),
        }
    }
}

/// What a call showed about the dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered, whatever it said about the item.
    Answered,
    /// It was unreachable, timed out, or asked not to be called.
    Unavailable,
}

impl Outcome {
    /// Classifies an HTTP status: 429 and 503 are about the dependency, everything else is an answer.
    #[must_use]
    pub const fn from_status(status: u16) -> Self {
        match status {
            429 | 503 => Self::Unavailable,
            _ => Self::Answered,
        }
    }
}

/// The three states, as they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Calls pass.
    Closed,
    /// Nobody calls.
    Open,
    /// One call at a time probes whether the dependency is back.
    HalfOpen,
}

impl State {
    /// The name as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Whether a call may be made.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes; return the pass with the outcome.
    Go(Pass),
    /// No; ask again after this long.
    Wait(Duration),
}

/// Belongs to one call. It remembers the breaker's generation when the call started, so that a late answer can't close
/// a breaker that has opened since.
#[derive(Debug, PartialEq, Eq)]
pub struct Pass {
    era: u64,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen { probing: bool },
}

/// The breaker of one dependency.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    phase: Phase,
    /// Incremented by each transition.
    era: u64,
    /// Signs of unavailability since the last answer.
    streak: u64,
}

impl Machine {
    /// Creates a closed breaker.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::Closed { failures: 0 },
            era: 0,
            streak: 0,
        }
    }

    /// The state as of the last call.
    #[must_use]
    pub const fn state(&self) -> State {
        match self.phase {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// Number of signs of unavailability since the last answer.
    #[must_use]
    pub const fn failures(&self) -> u64 {
        self.streak
    }

    /// How much longer it stays open, if it is open.
    #[must_use]
    pub fn open_for_from(&self, now: Instant) -> Option<Duration> {
        match self.phase {
            Phase::Open { until } => Some(until.saturating_duration_since(now)),
            Phase::Closed { .. } | Phase::HalfOpen { .. } => None,
        }
    }

    /// Decides whether a call may be made now.
    pub fn permit(&mut self, now: Instant) -> Decision {
        match self.phase {
            Phase::Closed { .. } => Decision::Go(Pass { era: self.era }),
            Phase::Open { until } if now < until => Decision::Wait(until - now),
            Phase::Open { .. } | Phase::HalfOpen { probing: false } => {
                self.enter(Phase::HalfOpen { probing: true });
                Decision::Go(Pass { era: self.era })
            }
            // A tenth of the open time, but not so short that waiting costs more than calling.
            Phase::HalfOpen { probing: true } => {
                Decision::Wait((self.settings.open_for / 10).max(Duration::from_millis(10)))
            }
        }
    }

    /// Records what a call showed.
    pub fn record(&mut self, pass: Pass, outcome: Outcome, now: Instant) {
        if pass.era != self.era {
            return;
        }
        match (self.phase, outcome) {
            (Phase::Closed { .. }, Outcome::Answered) => {
                self.streak = 0;
                self.phase = Phase::Closed { failures: 0 };
            }
            (Phase::Closed { failures }, Outcome::Unavailable) => {
                self.streak += 1;
                let failures = failures.saturating_add(1);
                if failures >= self.settings.threshold.get() {
                    self.open(now);
                } else {
                    self.phase = Phase::Closed { failures };
                }
            }
            (Phase::HalfOpen { .. }, Outcome::Answered) => {
                self.streak = 0;
                self.enter(Phase::Closed { failures: 0 });
            }
            (Phase::HalfOpen { .. }, Outcome::Unavailable) => {
                self.streak += 1;
                self.open(now);
            }
            // No pass is issued while the breaker is open.
            (Phase::Open { .. }, Outcome::Answered | Outcome::Unavailable) => {}
        }
    }

    /// Records a call that was cancelled without an outcome: the next may probe.
    pub fn abandon(&mut self, pass: Pass) {
        if pass.era == self.era && matches!(self.phase, Phase::HalfOpen { probing: true }) {
            self.phase = Phase::HalfOpen { probing: false };
        }
    }

    fn open(&mut self, now: Instant) {
        // A time that the clock can't express counts as very long.
        let far = Duration::from_secs(365 * 24 * 60 * 60);
        let until = now
            .checked_add(self.settings.open_for)
            .unwrap_or_else(|| now + far);
        self.enter(Phase::Open { until });
    }

    fn enter(&mut self, phase: Phase) {
        self.era += 1;
        self.phase = phase;
    }
}
