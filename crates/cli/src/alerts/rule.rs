//! A rule: one gauge, one limit, and how long the limit must be breached.
//!
//! Simple on purpose: a rule must mean the same to Prometheus and to the program. Anything more complex belongs in the
//! query behind the gauge.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Its name, and its heading in the operations guide.
    pub name: &'static str,
    /// Its group: `postrider` or a service.
    pub group: &'static str,
    /// The gauge that it reads.
    pub metric: &'static str,
    /// Only the series with this label.
    pub only: Option<(&'static str, &'static str)>,
    /// Each value of this label is evaluated separately.
    pub by: Option<&'static str>,
    /// How the gauge is read.
    pub read: Read,
    /// The limit.
    pub limit: Limit,
    /// How long the limit must be breached before the alert fires.
    pub hold_for: Duration,
    /// Its severity.
    pub severity: Severity,
    /// What is wrong, in a sentence; `{}` is the subject.
    pub summary: &'static str,
    /// What to do first; the operations guide has more.
    pub advice: &'static str,
}

/// How a gauge is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Its value; all processes report the same, and the maximum is the newest.
    Value,
    /// Its age: the gauge is a point in time.
    Age,
    /// The minimum over processes, which only Prometheus sees.
    Worst,
    /// Whether it exists at all, which only Prometheus can tell.
    Absent,
}

impl Read {
    /// Can the program evaluate it by itself?
    #[must_use]
    pub const fn is_internal(self) -> bool {
        matches!(self, Self::Value | Self::Age)
    }
}

/// The limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Breached above this value.
    Above(f64),
    /// Breached below this value.
    Below(f64),
}

impl Limit {
    /// Does this value breach it?
    #[must_use]
    pub fn is_breached(self, value: f64) -> bool {
        match self {
            Self::Above(limit) => value > limit,
            Self::Below(limit) => value < limit,
        }
    }
}

/// Severity of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Needs attention now.
    Critical,
    /// Needs attention today.
    Warning,
}

impl Severity {
    /// All of them, the most severe first.
    pub const ALL: [Self; 2] = [Self::Critical, Self::Warning];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

impl Rule {
    /// The summary for this subject.
    #[must_use]
    pub fn summary_of(&self, subject: &str) -> String {
        self.summary.replace("{}", subject)
    }
}
