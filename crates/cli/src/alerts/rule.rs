//! What a rule is: one gauge, one limit, and how long it must be beyond it.
//!
//! Simple on purpose. A rule must mean the same to Prometheus and to the program, so it is no language of its own: whatever
//! needs more thought is thought in the query behind the gauge.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Its name, and its heading in the operations guide.
    pub name: &'static str,
    /// Whose it is: `postrider` or a service.
    pub group: &'static str,
    /// The gauge that it looks at.
    pub metric: &'static str,
    /// Only the one with this label.
    pub only: Option<(&'static str, &'static str)>,
    /// Each value of this label is judged by itself.
    pub by: Option<&'static str>,
    /// How the gauge is looked at.
    pub look: Look,
    /// When it is wrong.
    pub wrong: Wrong,
    /// For how long it must be.
    pub hold: Duration,
    /// How bad that is.
    pub severity: Severity,
    /// What is wrong, in a sentence; `{}` is the subject.
    pub summary: &'static str,
    /// What to do first; the guide says more.
    pub advice: &'static str,
}

/// How a gauge is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Its value; all processes show the same, and the greatest is the newest.
    Value,
    /// It is a point in time: how long ago.
    Age,
    /// Each process has its own and the worst counts. Only Prometheus sees them all.
    Worst,
    /// Is there any at all? Only Prometheus can tell.
    Absent,
}

impl Look {
    /// Can the program judge it by itself?
    #[must_use]
    pub const fn inside(self) -> bool {
        matches!(self, Self::Value | Self::Age)
    }
}

/// The limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wrong {
    /// More than this.
    Above(f64),
    /// Less than this.
    Below(f64),
}

impl Wrong {
    /// Is this value wrong?
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Above(limit) => value > limit,
            Self::Below(limit) => value < limit,
        }
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Somebody should get up.
    Critical,
    /// Somebody should look today.
    Warning,
}

impl Severity {
    /// All of them, the worst first.
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
    /// The sentence about this subject.
    #[must_use]
    pub fn about(&self, subject: &str) -> String {
        self.summary.replace("{}", subject)
    }
}
