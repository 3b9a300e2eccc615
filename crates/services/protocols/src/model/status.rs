//! The nine states and the moves between them.
//!
//! A protocol changes its state only by a [`Move`], and a move exists only if the table allows it.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a protocol stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ProtocolStatus)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Status {
    /// Accepted; extraction will begin.
    Uploaded,
    /// The criteria are being looked for.
    Extracting,
    /// Extraction failed and is tried again.
    ExtractionFailed,
    /// Terms are being mapped to codes.
    Grounding,
    /// Grounding failed and is tried again.
    GroundingFailed,
    /// A person is to look at it.
    PendingReview,
    /// Approved.
    Complete,
    /// Given up; a person decides.
    DeadLetter,
    /// Given up long ago.
    Archived,
}

impl Status {
    /// All of them.
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

    /// The word in the database and in the API.
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

    /// The states that may follow this one. None: it is final.
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

    /// The move to another state, if the table allows it.
    pub fn to(self, next: Self) -> Result<Move, NotAllowed> {
        if self.successors().contains(&next) {
            Ok(Move {
                from: self,
                to: next,
            })
        } else {
            Err(NotAllowed {
                from: self,
                to: next,
            })
        }
    }

    /// May a person ask for another try?
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

/// A step from one state to another that the table allows; made by [`Status::to`] alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    from: Status,
    to: Status,
}

impl Move {
    /// Where it begins.
    #[must_use]
    pub const fn from(self) -> Status {
        self.from
    }

    /// Where it ends.
    #[must_use]
    pub const fn to(self) -> Status {
        self.to
    }
}

/// The table has no such move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a protocol that is {from} does not become {to}")]
pub struct NotAllowed {
    /// Where it would begin.
    pub from: Status,
    /// Where it would end.
    pub to: Status,
}
