//! Entries of the ledger.

use std::fmt;

use serde_json::Value;
use time::OffsetDateTime;

use super::Acceptance;
use crate::{Error, digest::Digest};

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Accepted and not finished.
    Accepted,
    /// Finished successfully.
    Succeeded,
    /// Failed permanently.
    Failed,
}

impl State {
    /// The name as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Final outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Finished successfully.
    Succeeded,
    /// Failed permanently.
    Failed,
}

impl From<Outcome> for State {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Failed => Self::Failed,
        }
    }
}

/// An entry of the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Digest of the request.
    pub digest: Digest,
    /// State of the request.
    pub state: State,
    /// Result, once it is finished.
    pub result: Option<Value>,
    /// When it was accepted.
    pub created_at: OffsetDateTime,
    /// When it was finished.
    pub finished_at: Option<OffsetDateTime>,
}

impl Entry {
    /// The answer to a later request under the same key.
    pub(super) fn answer(self, digest: &Digest) -> Acceptance {
        if self.digest == *digest {
            Acceptance::Replay(self)
        } else {
            Acceptance::Mismatch
        }
    }
}

/// The columns of an entry, as they come from the database.
pub(super) type Row = (
    Vec<u8>,
    String,
    Option<Value>,
    OffsetDateTime,
    Option<OffsetDateTime>,
);

impl TryFrom<Row> for Entry {
    type Error = Error;

    fn try_from((digest, state, result, created_at, finished_at): Row) -> Result<Self, Error> {
        let unreadable = |problem| Error::Unreadable {
            what: "postrider.ledger",
            problem,
        };
        let digest = Digest::from_bytes(&digest)
            .ok_or_else(|| unreadable(format!("a digest of {} bytes", digest.len())))?;
        let state = [State::Accepted, State::Succeeded, State::Failed]
            .into_iter()
            .find(|known| known.as_str() == state)
            .ok_or_else(|| unreadable(format!("the state {state:?}")))?;
        Ok(Self {
            digest,
            state,
            result,
            created_at,
            finished_at,
        })
    }
}

/// PostgreSQL's JSON has no NUL character; a result that contains one must not undo finished work.
pub(super) fn storable(value: Value) -> Value {
    let clean = |text: String| {
        if text.contains('\0') {
            text.replace('\0', "\u{FFFD}")
        } else {
            text
        }
    };
    match value {
        Value::String(text) => Value::String(clean(text)),
        Value::Array(items) => items.into_iter().map(storable).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(key, value)| (clean(key), storable(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}
