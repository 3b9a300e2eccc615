//! File jobs of evidence as rows.

use postrider_evidence::{
    Evidence, Filter,
    model::{JobStatus, JobSummary},
};
use postrider_web::Problem;

use super::{Bar, Job, Listing, Tone, Wanted, format};

const LIST: &str = "console.evidence";

pub(super) async fn list(evidence: &Evidence, wanted: &Wanted) -> Result<Listing, Problem> {
    let filter = Filter {
        merchant: wanted.owner(),
        status: wanted.status()?,
    };
    let list = wanted.list(LIST)?;
    let (before, limit) = (wanted.before(&list)?, Wanted::limit());
    let rows = evidence.list(&filter, before, limit.to_select()).await?;
    Listing::cut(rows, limit, &list, |row| row.file_job_id, job)
}

fn job(row: JobSummary) -> Job {
    let files = if row.total == 1 { "file" } else { "files" };
    let (state, tone) = match row.status {
        JobStatus::Processing => ("PROCESSING", Tone::Busy),
        JobStatus::Retrying => ("RETRYING", Tone::Waiting),
        JobStatus::Completed if row.failed > 0 => ("COMPLETED", Tone::Bad),
        JobStatus::Completed => ("COMPLETED", Tone::Good),
    };
    let told: Vec<&str> = [(row.n1_sent_at, "N1"), (row.n2_sent_at, "N2")]
        .into_iter()
        .filter_map(|(sent, name)| sent.map(|_| name))
        .collect();
    Job {
        id: row.file_job_id.to_string(),
        about: format!(
            "{} {files} of {}",
            format::count(row.total),
            row.merchant_id
        ),
        state: state.to_owned(),
        tone,
        bar: Some(Bar {
            done: row.attached,
            failed: row.failed,
            total: row.total,
        }),
        attempts: 0,
        note: match told.as_slice() {
            [] => String::new(),
            told => format!("{} sent", told.join(" and ")),
        },
        at: row.created_at.into(),
    }
}
