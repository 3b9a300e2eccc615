//! States, criteria and views of protocols. No I/O.

mod criterion;
mod status;
mod view;

pub use criterion::{Age, AgeUnit, Comparator, Criterion, Kind, Measure, Term};
pub use status::{InvalidTransition, Status, Transition};
pub use view::{Decision, ProtocolView, RetryQueued, ReviewRequest, Summary, Uploaded};

/// The maximum length of a title, in characters.
pub const MAX_TITLE_CHARS: usize = 500;

/// The two steps of the pipeline, each triggered by its own event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// From a document to criteria.
    Extraction,
    /// From criteria to codes.
    Grounding,
}

impl Step {
    /// The event that triggers it.
    #[must_use]
    pub const fn event(self) -> &'static str {
        match self {
            Self::Extraction => "PROTOCOL_UPLOADED",
            Self::Grounding => "CRITERIA_EXTRACTED",
        }
    }

    /// The state before it.
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

    /// The state after a failure, until it is retried.
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
