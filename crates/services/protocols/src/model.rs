//! States, criteria and views of protocols; pure.

mod criterion;
mod status;
mod view;

pub use criterion::{Age, AgeUnit, Comparator, Criterion, Kind, Measure, Term};
pub use status::{Move, NotAllowed, Status};
pub use view::{Decision, ProtocolView, RetryQueued, ReviewRequest, Summary, Uploaded};

/// The longest title, in characters.
pub const LONGEST_TITLE: usize = 500;

/// The two steps of the pipeline, each moved on by an event of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// From a document to criteria.
    Extraction,
    /// From criteria to codes.
    Grounding,
}

impl Step {
    /// The event that asks for it.
    #[must_use]
    pub const fn event(self) -> &'static str {
        match self {
            Self::Extraction => "PROTOCOL_UPLOADED",
            Self::Grounding => "CRITERIA_EXTRACTED",
        }
    }

    /// The state before it, and when it is done again after a crash.
    #[must_use]
    pub const fn ready(self) -> Status {
        match self {
            Self::Extraction => Status::Uploaded,
            Self::Grounding => Status::Grounding,
        }
    }

    /// The state while it runs.
    #[must_use]
    pub const fn running(self) -> Status {
        match self {
            Self::Extraction => Status::Extracting,
            Self::Grounding => Status::Grounding,
        }
    }

    /// The state when it failed and is tried again.
    #[must_use]
    pub const fn failed(self) -> Status {
        match self {
            Self::Extraction => Status::ExtractionFailed,
            Self::Grounding => Status::GroundingFailed,
        }
    }

    /// The state when it is done.
    #[must_use]
    pub const fn done(self) -> Status {
        match self {
            Self::Extraction => Status::Grounding,
            Self::Grounding => Status::PendingReview,
        }
    }

    /// Its name in logs, errors and breakers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Extraction => "extraction",
            Self::Grounding => "grounding",
        }
    }
}
