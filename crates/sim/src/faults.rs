//! The fault script of a simulated party: a list of rules, of which the first that matches a call decides.
//!
//! `[{ "symbol": "NOPE", "do": { "reject": { "reason_code": "UNKNOWN_SYMBOL" } } }, { "every": 3, "do": "hang_up" }]`

use std::sync::Mutex;
use std::time::Duration;

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde::Deserialize;
use uuid::Uuid;

use crate::lock;

/// The longest that a scripted delay lasts.
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// One rule. Conditions that are not given always hold.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Only orders for this symbol.
    #[serde(default)]
    pub symbol: Option<String>,
    /// Only files whose name contains this.
    #[serde(default)]
    pub file_name: Option<String>,
    /// Only this case.
    #[serde(default)]
    pub case_id: Option<Uuid>,
    /// Only documents whose title contains this.
    #[serde(default)]
    pub title: Option<String>,
    /// Only the first N calls about the same item.
    #[serde(default)]
    pub first_calls: Option<u32>,
    /// Only every Nth call that meets the other conditions.
    #[serde(default)]
    pub every: Option<u64>,
    /// At most N times in total.
    #[serde(default)]
    pub times: Option<u64>,
    /// What the party does.
    #[serde(rename = "do")]
    pub action: Action,
}

/// What a simulated party does with a call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Accepts it.
    Accept,
    /// Rejects it for good.
    Reject {
        /// Why.
        reason_code: String,
    },
    /// Answers with success, but reports in the body that it did not accept it.
    NotOk {
        /// Why.
        reason_code: String,
    },
    /// Accepts it after a delay.
    Slow {
        /// The delay.
        #[serde(rename = "for", with = "postrider::internal::duration")]
        delay: Duration,
    },
    /// Fails after a delay, without accepting it.
    Stall {
        /// The delay.
        #[serde(rename = "for", with = "postrider::internal::duration")]
        delay: Duration,
    },
    /// Fails without accepting it.
    Fail {
        /// The HTTP status of the answer.
        status: u16,
        /// The `Retry-After` of the answer, in seconds.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// Accepts it, and answers with a failure.
    FailAfter {
        /// The HTTP status of the answer.
        status: u16,
    },
    /// Accepts it, and breaks the connection instead of answering.
    HangUp,
    /// Accepts it, and denies later that it knows it.
    Forget,
}

/// The properties of a call that rules can match.
#[derive(Debug, Default, Clone, Copy)]
pub struct Call<'a> {
    /// The symbol of the order.
    pub symbol: Option<&'a str>,
    /// The name of the file.
    pub file_name: Option<&'a str>,
    /// The case that the file belongs to.
    pub case_id: Option<Uuid>,
    /// The title of the document.
    pub title: Option<&'a str>,
    /// The ordinal number of this call among those about the same item, from 1.
    pub number: u32,
}

impl Rule {
    fn matches(&self, call: &Call<'_>) -> bool {
        let contains = |part: &Option<String>, whole: Option<&str>| {
            let part = part.as_deref();
            part.is_none_or(|part| whole.is_some_and(|whole| whole.contains(part)))
        };
        (self.symbol.is_none() || self.symbol.as_deref() == call.symbol)
            && contains(&self.file_name, call.file_name)
            && contains(&self.title, call.title)
            && (self.case_id.is_none() || self.case_id == call.case_id)
            && self.first_calls.is_none_or(|first| call.number <= first)
    }
}

/// The rules of one party, each with the number of calls that it matched.
#[derive(Debug, Default)]
pub struct FaultScript(Mutex<Vec<(Rule, u64)>>);

impl FaultScript {
    /// A script of these rules.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let script = Self::default();
        script.replace(rules);
        script
    }

    /// A script from the JSON text of its rules.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self::new)
    }

    /// Replaces all rules; their counts start again.
    pub fn replace(&self, rules: Vec<Rule>) {
        *lock(&self.0) = rules.into_iter().map(|rule| (rule, 0)).collect();
    }

    /// Decides what happens to this call.
    pub fn decide(&self, call: &Call<'_>) -> Action {
        for (rule, matched) in lock(&self.0).iter_mut() {
            if !rule.matches(call) {
                continue;
            }
            *matched += 1;
            let every = rule.every.unwrap_or(1).max(1);
            let applied = matched.div_ceil(every);
            if matched.is_multiple_of(every) && rule.times.is_none_or(|times| applied <= times) {
                return rule.action.clone();
            }
        }
        Action::Accept
    }
}

impl Action {
    /// Answers a call; `accept` runs only where the action accepts it.
    pub(crate) async fn answer(self, accept: impl Future<Output = Response>) -> Response {
        match self {
            Self::Accept | Self::Forget => accept.await,
            Self::Reject { reason_code } | Self::NotOk { reason_code } => {
                (StatusCode::UNPROCESSABLE_ENTITY, reason_code).into_response()
            }
            Self::Slow { delay: duration } => {
                delay(duration).await;
                accept.await
            }
            Self::Stall { delay: duration } => {
                delay(duration).await;
                StatusCode::SERVICE_UNAVAILABLE.into_response()
            }
            Self::Fail {
                status: code,
                retry_after,
            } => status(code, retry_after),
            Self::FailAfter { status: code } => {
                accept.await;
                status(code, None)
            }
            Self::HangUp => {
                accept.await;
                hang_up()
            }
        }
    }
}

/// Waits as a rule says.
pub(crate) async fn delay(duration: Duration) {
    tokio::time::sleep(duration.min(MAX_DELAY)).await;
}

/// An answer with this status and `Retry-After`.
pub(crate) fn status(status: u16, retry_after: Option<u64>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match retry_after {
        Some(seconds) => (status, [(header::RETRY_AFTER, seconds.to_string())]).into_response(),
        None => status.into_response(),
    }
}

/// An answer whose body fails at once, which makes the server break the connection.
pub(crate) fn hang_up() -> Response {
    let broken = stream::iter([Err::<&str, std::io::Error>(
        std::io::ErrorKind::ConnectionReset.into(),
    )]);
    let mut response = Body::from_stream(broken).into_response();
    // A client that only reads the head must not take it for a success.
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn first_matching_rule_decides_as_often_as_it_allows() {
        let script = FaultScript::from_json(
            r#"[
                { "symbol": "NOPE", "do": { "reject": { "reason_code": "UNKNOWN_SYMBOL" } } },
                { "every": 2, "times": 1, "do": "hang_up" }
            ]"#,
        )
        .unwrap();
        let decide = |symbol| {
            let symbol = Some(symbol);
            script.decide(&Call {
                symbol,
                ..Call::default()
            })
        };
        assert!(matches!(decide("NOPE"), Action::Reject { .. }));
        assert_eq!(decide("ACME"), Action::Accept);
        assert_eq!(decide("ACME"), Action::HangUp);
        assert_eq!(decide("ACME"), Action::Accept);
        assert_eq!(decide("ACME"), Action::Accept);
        assert!(matches!(decide("NOPE"), Action::Reject { .. }));
    }

    #[test]
    fn rule_applies_only_to_calls_that_meet_every_condition() {
        let script = FaultScript::from_json(
            r#"[{ "file_name": "huge", "first_calls": 1, "do": { "fail": { "status": 413 } } }]"#,
        )
        .unwrap();
        let decide = |file_name, number| {
            script.decide(&Call {
                file_name,
                number,
                ..Call::default()
            })
        };
        assert!(matches!(decide(Some("huge.pdf"), 1), Action::Fail { .. }));
        assert_eq!(decide(Some("huge.pdf"), 2), Action::Accept);
        assert_eq!(decide(Some("small.pdf"), 1), Action::Accept);
        assert_eq!(decide(None, 1), Action::Accept);
    }
}
