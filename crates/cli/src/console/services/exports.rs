//! Export jobs as rows.

use std::collections::HashMap;

use postrider_exports::{
    Exports,
    model::{JobStatus, JobSummary, Progress},
    store::Filter,
};
use postrider_web::Problem;

use super::{Bar, Job, Listing, Tone, Wanted};

const LIST: &str = "console.exports";

pub(super) async fn list(exports: &Exports, wanted: &Wanted) -> Result<Listing, Problem> {
    let filter = Filter {
        status: wanted.status()?,
        ..Filter::default()
    };
    let list = wanted.list(LIST)?;
    let (before, limit) = (wanted.before(&list)?, Wanted::limit());
    let rows = exports.list(&filter, before, limit.to_select()).await?;
    // Only what still moves is counted: a job may have a hundred thousand inputs.
    let open: Vec<&str> = rows
        .iter()
        .filter(|(_, job)| job.status.is_open())
        .map(|(_, job)| job.job_id.as_str())
        .collect();
    let progress = exports.progress_of(&open).await?;
    let progress: HashMap<String, Progress> = progress
        .into_iter()
        .map(|progress| (progress.job_id.clone(), progress))
        .collect();
    Listing::cut(
        rows,
        limit,
        &list,
        |(place, _)| *place,
        |(_, row)| {
            let progress = progress.get(&row.job_id);
            job(row, progress)
        },
    )
}

fn job(row: JobSummary, progress: Option<&Progress>) -> Job {
    let total = i64::from(row.total);
    let bar = match (row.status, progress) {
        (JobStatus::Completed, _) => Some(Bar {
            done: total,
            failed: 0,
            total,
        }),
        (_, Some(progress)) => Some(Bar {
            done: progress.done,
            failed: progress.failed,
            total,
        }),
        (_, None) => None,
    };
    let files = if total == 1 { "file" } else { "files" };
    Job {
        about: format!("{} {files}", super::format::count(total)),
        id: row.job_id,
        state: row.status.as_str().to_owned(),
        tone: match row.status {
            JobStatus::Submitted => Tone::Waiting,
            JobStatus::Running => Tone::Busy,
            JobStatus::Completed => Tone::Good,
            JobStatus::Failed => Tone::Bad,
            JobStatus::Cancelled => Tone::Quiet,
        },
        bar,
        attempts: 0,
        note: row.error_message.unwrap_or_default(),
        at: row.requested_at.into(),
    }
}
