//! Protocols as rows.

use postrider_protocols::{
    Protocols,
    model::{Status, Summary},
};
use postrider_web::Problem;

use super::{Bar, Job, Listing, Tone, Wanted};

const LIST: &str = "console.protocols";

/// Steps from the upload to the approval.
const STEPS: i64 = 4;

pub(super) async fn list(protocols: &Protocols, wanted: &Wanted) -> Result<Listing, Problem> {
    let list = wanted.list(LIST)?;
    let (before, limit) = (wanted.before(&list)?, Wanted::limit());
    let rows = protocols
        .list(wanted.status()?, before, limit.to_select())
        .await?;
    Listing::cut(rows, limit, &list, |(place, _)| *place, |(_, row)| job(row))
}

fn job(row: Summary) -> Job {
    let (tone, done) = match row.status {
        Status::Uploaded => (Tone::Waiting, Some(0)),
        Status::Extracting => (Tone::Busy, Some(1)),
        Status::ExtractionFailed => (Tone::Waiting, Some(1)),
        Status::Grounding => (Tone::Busy, Some(2)),
        Status::GroundingFailed => (Tone::Waiting, Some(2)),
        Status::PendingReview => (Tone::Waiting, Some(3)),
        Status::Complete => (Tone::Good, Some(STEPS)),
        Status::DeadLetter => (Tone::Bad, None),
        Status::Archived => (Tone::Quiet, None),
    };
    Job {
        id: row.id.to_string(),
        about: row.title,
        state: row.status.as_str().to_owned(),
        tone,
        bar: done.map(|done| Bar {
            done,
            failed: 0,
            total: STEPS,
        }),
        attempts: 0,
        note: row.error_reason.unwrap_or_default(),
        at: row.created_at.into(),
    }
}
