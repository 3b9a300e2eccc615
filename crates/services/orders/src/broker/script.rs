//! How the paper broker misbehaves: a list of rules, the first that fits an order decides.
//!
//! `[{ "symbol": "NOPE", "do": { "reject": { "reason_code": "UNKNOWN_SYMBOL" } } }, { "every": 3, "do": "hang_up" }]`

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// One rule.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Only orders of this symbol.
    #[serde(default)]
    pub symbol: Option<String>,
    /// Only every so-maniest order that fits otherwise.
    #[serde(default)]
    pub every: Option<u64>,
    /// Only so many times.
    #[serde(default)]
    pub times: Option<u64>,
    /// What then happens.
    #[serde(rename = "do")]
    pub act: Act,
}

/// What the broker does with an order.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Takes it.
    Accept,
    /// Says no, for good.
    Reject {
        /// Why.
        reason_code: String,
    },
    /// Answers with success, but says that it did not take it.
    NotOk {
        /// Why.
        reason_code: String,
    },
    /// Takes it after this long.
    Slow {
        /// How long.
        #[serde(rename = "for", with = "postrider::duration")]
        wait: Duration,
    },
    /// Fails before it has taken it.
    Fail {
        /// With which status.
        status: u16,
        /// When it wants to be asked again, in seconds.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// Takes it, and answers with a failure.
    FailAfter {
        /// With which status.
        status: u16,
    },
    /// Takes it, and breaks the connection.
    HangUp,
    /// Takes it, and does not know it when asked.
    Forget,
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

    /// What happens to this order.
    pub fn act(&self, order: &Value) -> Act {
        let symbol = order.get("symbol").and_then(Value::as_str);
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (rule, met) in rules.iter_mut() {
            if rule.symbol.is_some() && rule.symbol.as_deref() != symbol {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides_as_often_as_it_says() {
        let rules = json!([
            { "symbol": "NOPE", "do": { "reject": { "reason_code": "UNKNOWN_SYMBOL" } } },
            { "every": 2, "times": 1, "do": "hang_up" },
        ]);
        let script = Script::new(serde_json::from_value(rules).unwrap());
        let nope = json!({ "symbol": "NOPE" });
        let acme = json!({ "symbol": "ACME" });
        assert!(matches!(script.act(&nope), Act::Reject { .. }));
        assert!(matches!(script.act(&acme), Act::Accept));
        assert!(matches!(script.act(&acme), Act::HangUp));
        assert!(matches!(script.act(&acme), Act::Accept));
        assert!(matches!(script.act(&acme), Act::Accept));
        assert!(matches!(script.act(&nope), Act::Reject { .. }));
    }
}
