//! What the doctor says.

use serde::Serialize;

use super::exam::Answer;

/// How bad something is. The order is from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing needs to be done now.
    Info,
    /// Something should be done; no promise is broken yet.
    Warning,
    /// A promise is broken, or soon will be.
    Critical,
}

impl Severity {
    /// A word for people.
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

/// What one look found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The look's name, e.g. `I3/expired-leases`; stable, for scripts.
    pub check: String,
    /// What was looked at, e.g. a work table; none for the server as a whole.
    pub subject: Option<String>,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, with figures.
    pub what: String,
    /// What to do about it; none when nothing is wrong.
    pub advice: Option<String>,
    /// Some of the items, processes or keys in question.
    pub items: Vec<String>,
}

/// All findings of an examination, the good ones too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order in which things were looked at.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The severity of the worst finding.
    #[must_use]
    pub fn worst(&self) -> Severity {
        let severities = self.findings.iter().map(|finding| finding.severity);
        severities.max().unwrap_or(Severity::Ok)
    }

    /// The findings that are at least as bad as this, the worst first.
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

    /// Writes down what a look brought: its complaints, that all is well, or why it failed.
    pub(super) fn take(&mut self, check: &str, subject: Option<&str>, well: &str, answer: Answer) {
        let complaints = match answer {
            Ok(complaints) => complaints,
            Err(unanswered) => vec![unanswered.complaint()],
        };
        let finding = |severity, what, advice, items| Finding {
            check: check.to_owned(),
            subject: subject.map(str::to_owned),
            severity,
            what,
            advice,
            items,
        };
        if complaints.is_empty() {
            self.findings
                .push(finding(Severity::Ok, well.to_owned(), None, Vec::new()));
        }
        self.findings.extend(
            complaints
                .into_iter()
                .map(|c| finding(c.severity, c.what, Some(c.advice), c.items)),
        );
    }
}
