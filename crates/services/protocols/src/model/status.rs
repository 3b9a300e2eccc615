//! The nine states and the transitions between them.
//!
//! A protocol changes its state only by a [`Transition`], which exists only if the state diagram allows it.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ProtocolStatus)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Status {
    /// Accepted; extraction is next.
    Uploaded,
    /// Criteria are being extracted.
    Extracting,
    /// Extraction failed and will be retried.
    ExtractionFailed,
    /// Terms are being mapped to codes.
    Grounding,
    /// Grounding failed and will be retried.
    GroundingFailed,
    /// Waiting for a reviewer.
    PendingReview,
    /// Approved.
    Complete,
    /// Failed for good; an operator decides.
    DeadLetter,
    /// A dead letter that was archived.
    Archived,
}

impl Status {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Uploaded,
        Self::Extracting,
        Self::ExtractionFailed,
        Self::Grounding,
        Self::GroundingFailed,
        Self::PendingReview,
        Self::Complete,
        Self::DeadLetter,
        Self::Archived,
    ];

    /// Its name in the database and in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uploaded => "uploaded",
            Self::Extracting => "extracting",
            Self::ExtractionFailed => "extraction_failed",
            Self::Grounding => "grounding",
            Self::GroundingFailed => "grounding_failed",
            Self::PendingReview => "pending_review",
            Self::Complete => "complete",
            Self::DeadLetter => "dead_letter",
            Self::Archived => "archived",
        }
    }

    /// The states that may follow this one; empty for a final state.
    #[must_use]
    pub const fn successors(self) -> &'static [Self] {
        match self {
            Self::Uploaded => &[Self::Extracting],
            Self::Extracting => &[Self::Grounding, Self::ExtractionFailed, Self::DeadLetter],
            Self::ExtractionFailed => &[Self::Extracting, Self::Uploaded, Self::DeadLetter],
            Self::Grounding => &[Self::PendingReview, Self::GroundingFailed, Self::DeadLetter],
            Self::GroundingFailed => &[Self::Grounding, Self::Uploaded, Self::DeadLetter],
            Self::PendingReview => &[Self::Complete, Self::Uploaded],
            Self::DeadLetter => &[Self::Uploaded, Self::Archived],
            Self::Complete | Self::Archived => &[],
        }
    }

    /// The transition to another state, if the state diagram allows it.
    pub fn transition_to(self, to: Self) -> Result<Transition, InvalidTransition> {
        if self.successors().contains(&to) {
            Ok(Transition { from: self, to })
        } else {
            Err(InvalidTransition { from: self, to })
        }
    }

    /// Can it be retried by hand?
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::ExtractionFailed | Self::GroundingFailed | Self::DeadLetter => true,
            Self::Uploaded
            | Self::Extracting
            | Self::Grounding
            | Self::PendingReview
            | Self::Complete
            | Self::Archived => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An allowed change of state; only [`Status::transition_to`] creates one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    from: Status,
    to: Status,
}

impl Transition {
    /// The state before.
    #[must_use]
    pub const fn from(self) -> Status {
        self.from
    }

    /// The state after.
    #[must_use]
    pub const fn to(self) -> Status {
        self.to
    }
}

/// The state diagram has no such transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a protocol that is {from} can't become {to}")]
pub struct InvalidTransition {
    /// The state before.
    pub from: Status,
    /// The state after.
    pub to: Status,
}
