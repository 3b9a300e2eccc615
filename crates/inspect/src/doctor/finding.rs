//! Findings and the report.

use serde::Serialize;

use super::probe::CheckResult;

/// Severity, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Healthy.
    Ok,
    /// Worth knowing; no action needed.
    Info,
    /// Action needed; no promise is broken yet.
    Warning,
    /// A promise is broken, or soon will be.
    Critical,
}

impl Severity {
    /// Lower-case name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check, e.g. `I3/expired-leases`; stable, for scripts.
    pub check: String,
    /// What was checked, e.g. a work table; `None` for the whole server.
    pub subject: Option<String>,
    /// Severity.
    pub severity: Severity,
    /// What was found, with numbers.
    pub what: String,
    /// What to do about it; `None` if nothing is wrong.
    pub advice: Option<String>,
    /// Some of the affected items, processes or keys.
    pub items: Vec<String>,
}

/// All findings, including the good ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Severity of the worst finding.
    #[must_use]
    pub fn worst(&self) -> Severity {
        let severities = self.findings.iter().map(|finding| finding.severity);
        severities.max().unwrap_or(Severity::Ok)
    }

    /// Findings of at least this severity, worst first.
    #[must_use]
    pub fn at_least(&self, severity: Severity) -> Vec<&Finding> {
        let mut found: Vec<&Finding> = self
            .findings
            .iter()
            .filter(|finding| finding.severity >= severity)
            .collect();
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        found
    }

    /// Adds the result of a check: its issues, that all is well (`healthy`), or why it failed.
    pub(super) fn add(
        &mut self,
        check: &str,
        subject: Option<&str>,
        healthy: &str,
        result: CheckResult,
    ) {
        let issues = match result {
            Ok(issues) => issues,
            Err(error) => vec![error.issue()],
        };
        let finding = |severity, what, advice, items| Finding {
            check: check.to_owned(),
            subject: subject.map(str::to_owned),
            severity,
            what,
            advice,
            items,
        };
        if issues.is_empty() {
            self.findings
                .push(finding(Severity::Ok, healthy.to_owned(), None, Vec::new()));
        }
        self.findings.extend(
            issues
                .into_iter()
                .map(|issue| finding(issue.severity, issue.what, Some(issue.advice), issue.items)),
        );
    }
}
