//! Waiting for the end of what was sent: whatever goes wrong from then on, it is named, so that nobody sends it twice.

use serde_json::Value;

use super::client::Client;
use crate::exit::Failure;

/// What a server has accepted.
pub(super) struct Accepted {
    what: String,
    ask: String,
}

impl Accepted {
    /// `what` with its name, and the command that says what became of it.
    pub fn new(what: impl Into<String>, ask: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            ask: ask.into(),
        }
    }

    /// How it stands; a server that is away is asked again for a while.
    pub async fn look(&self, client: &Client, path: &[&str]) -> Result<Value, Failure> {
        client.look(path).await.map_err(|miss| self.but(miss))
    }

    /// The wait has failed, which says nothing about what is waited for.
    pub fn but(&self, failure: impl Into<Failure>) -> Failure {
        let (Self { what, ask }, failure) = (self, failure.into());
        let message =
            format!("{what} was accepted; waiting for its end failed: {failure}; ask with `{ask}`");
        failure.saying(message)
    }
}
