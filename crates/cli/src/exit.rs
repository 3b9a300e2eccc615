//! How the program ends: one number per kind of end, so that scripts can tell them apart.

use std::{fmt, process::ExitCode};

/// The kinds of end. The numbers are part of the contract with scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The work failed.
    Failed = 1,
    /// The command line was wrong (clap's own number for it).
    Usage = 2,
    /// The configuration was wrong.
    Config = 3,
    /// The database could not be had.
    Database = 4,
    /// The database's schema does not fit this program.
    Schema = 5,
    /// The server could not be reached.
    Unreachable = 6,
    /// The server refused the request.
    Refused = 7,
}

/// The same list for `--help` and the man page.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  the work failed
  2  wrong usage
  3  wrong configuration
  4  the database can't be had
  5  the database's schema does not fit this program
  6  the server can't be reached
  7  the server refused the request";

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
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An end that is not success: which kind, and a sentence that says what to do.
#[derive(Debug)]
pub struct Failure {
    /// The kind of end.
    pub exit: Exit,
    /// What happened, for a person.
    pub message: String,
    /// What happened, in the server's own word for it, where a server said so.
    said: Option<String>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            said: None,
        }
    }

    /// A server's refusal, under the code that its answer had.
    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self {
            said: (!code.is_empty()).then(|| code.to_owned()),
            ..Self::new(Exit::Refused, message)
        }
    }

    /// The same failure in other words.
    #[must_use]
    pub fn saying(self, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..self
        }
    }

    /// A stable word for `--json`: the server's where it has said one, else the kind of end.
    pub fn code(&self) -> &str {
        self.said.as_deref().unwrap_or(self.exit.code())
    }

    /// A failure of this kind that tells the whole chain of causes.
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

/// An error and its causes in one line; a cause that its parent already quotes is not said twice.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = cause.source();
    }
    text
}
