//! The breaker as a pure state machine: the caller brings the time.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// When a breaker opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// So many signs in a row that the dependency is unavailable open the breaker.
    pub threshold: std::num::NonZeroU32,
    /// So long nobody calls it then.
    #[serde(with = "crate::duration")]
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
    /// It could not be reached, did not answer in time, or asked to be left alone.
    Unavailable,
}

impl Outcome {
    /// What an HTTP status shows: 429 and 503 are about the dependency, everything else is an answer.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            429 | 503 => Self::Unavailable,
            _ => Self::Answered,
        }
    }
}

/// The three states, as they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Calls go through.
    Closed,
    /// Nobody calls.
    Open,
    /// One call at a time finds out whether the dependency is back.
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
    /// Yes; bring the pass back with the outcome.
    Go(Pass),
    /// No; ask again after this time.
    Wait(Duration),
}

/// Belongs to one call. It remembers in which era of the breaker the call began, so that an answer that comes late
/// can't close a breaker that has opened since.
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
    /// Grows with each transition.
    era: u64,
    /// Signs of unavailability since the last answer.
    streak: u64,
}

impl Machine {
    /// A closed breaker.
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

    /// Signs of unavailability since the last answer.
    #[must_use]
    pub const fn failures(&self) -> u64 {
        self.streak
    }

    /// How much longer it is open, if it is.
    #[must_use]
    pub fn open_for_from(&self, now: Instant) -> Option<Duration> {
        match self.phase {
            Phase::Open { until } => Some(until.saturating_duration_since(now)),
            Phase::Closed { .. } | Phase::HalfOpen { .. } => None,
        }
    }

    /// May a call be made now?
    pub fn permit(&mut self, now: Instant) -> Decision {
        match self.phase {
            Phase::Closed { .. } => Decision::Go(Pass { era: self.era }),
            Phase::Open { until } if now < until => Decision::Wait(until - now),
            Phase::Open { .. } | Phase::HalfOpen { probing: false } => {
                self.enter(Phase::HalfOpen { probing: true });
                Decision::Go(Pass { era: self.era })
            }
            // A tenth of the open time, but not so often that waiting costs more than calling.
            Phase::HalfOpen { probing: true } => {
                Decision::Wait((self.settings.open_for / 10).max(Duration::from_millis(10)))
            }
        }
    }

    /// Takes note of what a call showed.
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
            // No pass is given out while the breaker is open.
            (Phase::Open { .. }, Outcome::Answered | Outcome::Unavailable) => {}
        }
    }

    /// A call that ended without showing anything, because it was cancelled: the next may probe.
    pub fn abandon(&mut self, pass: Pass) {
        if pass.era == self.era && matches!(self.phase, Phase::HalfOpen { probing: true }) {
            self.phase = Phase::HalfOpen { probing: false };
        }
    }

    fn open(&mut self, now: Instant) {
        // A time that the clock can't express is as good as a very long one.
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
