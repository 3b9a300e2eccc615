//! Evaluation as pure functions: which rules are breached, and what that changes.

use std::{collections::BTreeMap, time::Duration};

use postrider_inspect::gauges::Gauge;
use time::OffsetDateTime;
use uuid::Uuid;

use super::rule::{Read, Rule};

/// Breached rules: name and subject, with the rule and the value.
pub type Breaches<'a> = BTreeMap<(String, String), (&'a Rule, f64)>;

/// A recorded alert that is not resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAlert {
    /// Its id.
    pub id: Uuid,
    /// The rule's name.
    pub rule: String,
    /// The subject.
    pub subject: String,
    /// Since when the condition holds.
    pub since: OffsetDateTime,
    /// It has fired.
    pub fired: bool,
}

/// A change to the recorded alerts.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition<'a> {
    /// A rule is newly breached.
    Open {
        /// The rule.
        rule: &'a Rule,
        /// The subject.
        subject: String,
        /// The value.
        value: f64,
        /// It fires immediately.
        fires: bool,
    },
    /// Still breached.
    Update {
        /// The alert.
        id: Uuid,
        /// The value.
        value: f64,
    },
    /// Breached for long enough.
    Fire {
        /// The alert.
        id: Uuid,
        /// The rule.
        rule: &'a Rule,
        /// The subject.
        subject: String,
        /// The value.
        value: f64,
    },
    /// No longer breached.
    Resolve {
        /// The alert.
        id: Uuid,
    },
    /// No longer breached before it fired.
    Discard {
        /// The alert.
        id: Uuid,
    },
}

/// Which rules are breached now.
#[must_use]
pub fn breaches<'a>(rules: &'a [Rule], gauges: &[Gauge], now: OffsetDateTime) -> Breaches<'a> {
    let mut found = Breaches::new();
    for rule in rules.iter().filter(|rule| rule.read.is_internal()) {
        for (subject, value) in values(rule, gauges) {
            let value = match rule.read {
                Read::Age => now.unix_timestamp_nanos() as f64 / 1e9 - value,
                _ => value,
            };
            if rule.limit.is_breached(value) {
                found.insert((rule.name.to_owned(), subject), (rule, value));
            }
        }
    }
    found
}

/// The maximum per subject.
fn values(rule: &Rule, gauges: &[Gauge]) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for gauge in gauges.iter().filter(|gauge| gauge.name == rule.metric) {
        let label = gauge.label.as_ref();
        let matches = rule
            .only
            .is_none_or(|(name, which)| label.is_some_and(|(n, w)| *n == name && w == which));
        if !matches {
            continue;
        }
        let subject = rule
            .by
            .and_then(|by| label.filter(|(name, _)| *name == by))
            .map(|(_, which)| which.clone())
            .unwrap_or_default();
        let max = found.entry(subject).or_insert(gauge.value);
        *max = gauge.value.max(*max);
    }
    found
}

/// What changes, given the open alerts.
#[must_use]
pub fn transitions<'a>(
    open: &[OpenAlert],
    mut breaches: Breaches<'a>,
    now: OffsetDateTime,
) -> Vec<Transition<'a>> {
    let mut found = Vec::new();
    for alert in open {
        let breach = breaches.remove(&(alert.rule.clone(), alert.subject.clone()));
        found.push(match breach {
            Some((rule, value)) if !alert.fired && long_enough(rule, alert.since, now) => {
                Transition::Fire {
                    id: alert.id,
                    rule,
                    subject: alert.subject.clone(),
                    value,
                }
            }
            Some((_, value)) => Transition::Update {
                id: alert.id,
                value,
            },
            None if alert.fired => Transition::Resolve { id: alert.id },
            None => Transition::Discard { id: alert.id },
        });
    }
    found.extend(
        breaches
            .into_iter()
            .map(|((_, subject), (rule, value))| Transition::Open {
                rule,
                subject,
                value,
                fires: rule.hold_for.is_zero(),
            }),
    );
    found
}

fn long_enough(rule: &Rule, since: OffsetDateTime, now: OffsetDateTime) -> bool {
    Duration::try_from(now - since).is_ok_and(|held| held >= rule.hold_for)
}
