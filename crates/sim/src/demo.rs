//! The demo: all five services under load on a private PostgreSQL, with injected failures. It ends by itself.
//!
//! The services run as processes of the program itself: one for API and console, two workers. Load comes in over HTTP,
//! outside parties fail now and then, one worker is killed, then the database server. Work that can't succeed becomes a
//! dead letter and is redriven once its cause is fixed. At the end an independent checker compares what was accepted
//! with what the outside parties recorded.

mod checker;
mod client;
mod config;
mod directory;
mod leases;
mod load;
mod parties;
mod processes;
mod scenario;

pub use checker::{Effect, Evidence, Report, Tally};
pub use directory::Directory;
pub use leases::service_of;
pub use load::Progress;
pub use scenario::{Demo, Setup, prepare};

/// Why the demo can't go on.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Which kind of failure it is.
    pub kind: ErrorKind,
    message: String,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The demo itself failed.
    Failed,
    /// The caller must choose another directory.
    Usage,
    /// The database failed.
    Database,
}

impl Error {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    fn caused(context: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::failed(format!("{context}: {}", chain(error)))
    }

    fn database(error: &sqlx::Error) -> Self {
        let message = format!("the demo lost its database: {}", chain(error));
        Self::new(ErrorKind::Database, message)
    }
}

/// An error and its causes in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Where the demo reports what happens.
pub trait Reporter: Sync {
    /// Something happened: one word for it, and the details.
    fn event(&self, event: &str, detail: &str);

    /// How far each service is.
    fn progress(&self, services: &[Progress]);
}
