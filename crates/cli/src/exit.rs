//! Exit codes: one number per kind of failure, so that scripts can tell them apart.

use std::{fmt, process::ExitCode};

/// Kinds of failure. The numbers are part of the contract with scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The work failed.
    Failed = 1,
    /// The command line was wrong (clap's own number for it).
    Usage = 2,
    /// The configuration was wrong.
    Config = 3,
    /// The database was unavailable.
    Database = 4,
    /// The database's schema does not match this program.
    Schema = 5,
    /// The server could not be reached.
    Unreachable = 6,
    /// The server refused the request.
    Refused = 7,
    /// A wait timed out; the work goes on.
    Timeout = 8,
}

/// The same list for `--help` and the man page.
pub const HELP: &str = "\
Exit codes:
  0  success
  1  the work failed
  2  invalid command line
  3  invalid configuration
  4  the database is unavailable
  5  the database's schema does not match this program
  6  the server can't be reached
  7  the server refused the request
  8  the wait timed out; the work goes on";

impl Exit {
    /// A stable word for `--json`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Config => "config",
            Self::Database => "database",
            Self::Schema => "schema",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failure: its kind, and a sentence that says what to do.
#[derive(Debug)]
pub struct Failure {
    /// Its kind.
    pub exit: Exit,
    /// What happened, for a person.
    pub message: String,
    /// The server's error code, if a server refused the request.
    code: Option<String>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            code: None,
        }
    }

    /// A request that the server refused with this error code.
    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: (!code.is_empty()).then(|| code.to_owned()),
            ..Self::new(Exit::Refused, message)
        }
    }

    /// The same failure with another message.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..self
        }
    }

    /// A stable word for `--json`: the server's error code if there is one, else the kind.
    pub fn code(&self) -> &str {
        self.code.as_deref().unwrap_or(self.exit.code())
    }

    /// A failure of this kind with the whole chain of causes.
    pub fn caused(exit: Exit, doing: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(exit, format!("{doing}: {}", chain(error)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An error and its causes in one line; a cause that its parent already quotes is not repeated.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let next = cause.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = cause.source();
    }
    text
}
