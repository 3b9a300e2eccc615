//! Judging, as pure functions: which conditions hold, and what that changes.

use std::{collections::BTreeMap, time::Duration};

use postrider_inspect::gauges::Gauge;
use time::OffsetDateTime;
use uuid::Uuid;

use super::rule::{Look, Rule};

/// The conditions that hold: rule and subject, with the rule and what was measured.
pub type Holding<'a> = BTreeMap<(String, String), (&'a Rule, f64)>;

/// A period that is on record and not over.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    /// Its id.
    pub id: Uuid,
    /// The rule's name.
    pub rule: String,
    /// Which of several.
    pub subject: String,
    /// Since when the condition holds.
    pub since: OffsetDateTime,
    /// Has it fired?
    pub fired: bool,
}

/// What a look at the readings changes.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<'a> {
    /// A condition holds that did not.
    Begin {
        /// By which rule.
        rule: &'a Rule,
        /// Which of several.
        subject: String,
        /// What was measured.
        value: f64,
        /// Does it fire at once?
        fires: bool,
    },
    /// It still holds.
    Keep {
        /// The period.
        id: Uuid,
        /// What was measured.
        value: f64,
    },
    /// It has held long enough.
    Fire {
        /// The period.
        id: Uuid,
        /// By which rule.
        rule: &'a Rule,
        /// Which of several.
        subject: String,
        /// What was measured.
        value: f64,
    },
    /// It is over.
    Resolve {
        /// The period.
        id: Uuid,
    },
    /// It was over before it fired.
    Forget {
        /// The period.
        id: Uuid,
    },
}

/// Which conditions hold now.
#[must_use]
pub fn holding<'a>(rules: &'a [Rule], readings: &[Gauge], now: OffsetDateTime) -> Holding<'a> {
    let mut found = Holding::new();
    for rule in rules.iter().filter(|rule| rule.look.inside()) {
        for (subject, value) in values(rule, readings) {
            let value = match rule.look {
                Look::Age => now.unix_timestamp_nanos() as f64 / 1e9 - value,
                _ => value,
            };
            if rule.wrong.holds(value) {
                found.insert((rule.name.to_owned(), subject), (rule, value));
            }
        }
    }
    found
}

/// The greatest of each subject.
fn values(rule: &Rule, readings: &[Gauge]) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for reading in readings
        .iter()
        .filter(|reading| reading.name == rule.metric)
    {
        let label = reading.label.as_ref();
        let fits = rule
            .only
            .is_none_or(|(name, which)| label.is_some_and(|(n, w)| *n == name && w == which));
        if !fits {
            continue;
        }
        let subject = rule
            .by
            .and_then(|by| label.filter(|(name, _)| *name == by))
            .map(|(_, which)| which.clone())
            .unwrap_or_default();
        let greatest = found.entry(subject).or_insert(reading.value);
        *greatest = reading.value.max(*greatest);
    }
    found
}

/// What that changes, given what is on record.
#[must_use]
pub fn step<'a>(open: &[Open], mut holding: Holding<'a>, now: OffsetDateTime) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for period in open {
        let held = holding.remove(&(period.rule.clone(), period.subject.clone()));
        steps.push(match held {
            Some((rule, value)) if !period.fired && long_enough(rule, period.since, now) => {
                Step::Fire {
                    id: period.id,
                    rule,
                    subject: period.subject.clone(),
                    value,
                }
            }
            Some((_, value)) => Step::Keep {
                id: period.id,
                value,
            },
            None if period.fired => Step::Resolve { id: period.id },
            None => Step::Forget { id: period.id },
        });
    }
    steps.extend(
        holding
            .into_iter()
            .map(|((_, subject), (rule, value))| Step::Begin {
                rule,
                subject,
                value,
                fires: rule.hold.is_zero(),
            }),
    );
    steps
}

fn long_enough(rule: &Rule, since: OffsetDateTime, now: OffsetDateTime) -> bool {
    Duration::try_from(now - since).is_ok_and(|held| held >= rule.hold)
}
