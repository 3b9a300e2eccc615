//! Retry policies in configuration files.
//!
//! `{ strategy = "exponential", initial = "5m", multiplier = 2, cap = "60m", jitter = 0.2, max_attempts = 3 }`

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Backoff, PolicyError, RetryPolicy};

/// The written form; reading it back applies the checks of [`RetryPolicy::new`].
#[derive(Serialize, Deserialize)]
#[serde(tag = "strategy", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Form {
    Exponential {
        #[serde(alias = "initial_delay", with = "crate::internal::duration")]
        initial: Duration,
        #[serde(default = "double")]
        multiplier: f64,
        #[serde(alias = "max_delay", with = "crate::internal::duration")]
        cap: Duration,
        #[serde(default, alias = "jitter_pct")]
        jitter: f64,
        max_attempts: u32,
    },
    Table {
        delays: Vec<Delay>,
        max_attempts: u32,
    },
    Fixed {
        #[serde(with = "crate::internal::duration")]
        delay: Duration,
        max_attempts: u32,
    },
    None {},
}

/// One row of a table of delays.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Delay(#[serde(with = "crate::internal::duration")] Duration);

const fn double() -> f64 {
    2.0
}

impl TryFrom<Form> for RetryPolicy {
    type Error = PolicyError;

    fn try_from(form: Form) -> Result<Self, PolicyError> {
        match form {
            Form::Exponential {
                initial,
                multiplier,
                cap,
                jitter,
                max_attempts,
            } => Self::new(
                Backoff::Exponential {
                    initial,
                    multiplier,
                    cap,
                    jitter,
                },
                max_attempts,
            ),
            Form::Table {
                delays,
                max_attempts,
            } => Self::table(
                delays.into_iter().map(|delay| delay.0).collect::<Vec<_>>(),
                max_attempts,
            ),
            Form::Fixed {
                delay,
                max_attempts,
            } => Self::fixed(delay, max_attempts),
            Form::None {} => Ok(Self::none()),
        }
    }
}

impl From<RetryPolicy> for Form {
    fn from(policy: RetryPolicy) -> Self {
        let max_attempts = policy.max_attempts;
        match policy.backoff {
            Backoff::Exponential {
                initial,
                multiplier,
                cap,
                jitter,
            } => Self::Exponential {
                initial,
                multiplier,
                cap,
                jitter,
                max_attempts,
            },
            Backoff::Table(delays) => Self::Table {
                delays: delays.into_iter().map(Delay).collect(),
                max_attempts,
            },
            Backoff::Fixed(delay) => Self::Fixed {
                delay,
                max_attempts,
            },
            Backoff::None => Self::None {},
        }
    }
}
