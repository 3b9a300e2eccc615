//! How the simulated Case API misbehaves: a list of rules, the first that fits a call decides.
//!
//! `[{ "file_name": "huge", "do": { "fail": { "status": 413 } } }, { "first_calls": 1, "do": "hang_up" }]`

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;

/// One rule.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Only files whose name contains this.
    #[serde(default)]
    pub file_name: Option<String>,
    /// Only this case.
    #[serde(default)]
    pub case_id: Option<Uuid>,
    /// Only so many first calls for each artifact.
    #[serde(default)]
    pub first_calls: Option<u32>,
    /// Only every so-maniest call that fits otherwise.
    #[serde(default)]
    pub every: Option<u64>,
    /// Only so many times in all.
    #[serde(default)]
    pub times: Option<u64>,
    /// What then happens.
    #[serde(rename = "do")]
    pub act: Act,
}

/// What the API does with a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Attaches it.
    Accept,
    /// Fails without attaching it.
    Fail {
        /// With which status.
        status: u16,
        /// When it wants to be asked again, in seconds.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// Attaches it, and answers with a failure.
    FailAfter {
        /// With which status.
        status: u16,
    },
    /// Attaches it after this long.
    Slow {
        /// How long.
        #[serde(rename = "for", with = "postrider::duration")]
        wait: Duration,
    },
    /// Attaches nothing, and answers after this long.
    Stall {
        /// How long.
        #[serde(rename = "for", with = "postrider::duration")]
        wait: Duration,
    },
    /// Attaches it, and breaks the connection.
    HangUp,
}

/// The rules, with how often each has been met.
#[derive(Debug, Default)]
pub struct Script(Mutex<Vec<(Rule, u64)>>);

impl Script {
    /// A script of these rules.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let script = Self::default();
        script.replace(rules);
        script
    }

    /// From now on these rules.
    pub fn replace(&self, rules: Vec<Rule>) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *current = rules.into_iter().map(|rule| (rule, 0)).collect();
    }

    /// What happens to this call, the `call`-th for its artifact.
    pub fn act(&self, case: Uuid, file_name: &str, call: u32) -> Act {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (rule, met) in rules.iter_mut() {
            let fits = rule
                .file_name
                .as_ref()
                .is_none_or(|part| file_name.contains(part))
                && rule.case_id.is_none_or(|only| only == case)
                && rule.first_calls.is_none_or(|first| call <= first);
            if !fits {
                continue;
            }
            *met += 1;
            let turn = rule.every.unwrap_or(1).max(1);
            let acted = met.div_ceil(turn);
            if met.is_multiple_of(turn) && rule.times.is_none_or(|times| acted <= times) {
                return rule.act.clone();
            }
        }
        Act::Accept
    }
}
