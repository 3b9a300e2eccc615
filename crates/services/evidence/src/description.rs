//! What the program knows about evidence: states, actions, schema, and how the console lists and changes file jobs.

use futures_util::future::BoxFuture;
use postrider_inspect::timeline::Timeline;
use postrider_web::{
    Page, Problem,
    service::{
        Action, ActionRequest, Confirmation, Fact, ItemSummary, ListQuery, Progress, Service,
        ServiceDescription, Tone, timeline_by_uuid,
    },
    text::{count, plural},
};
use serde_json::Value;

use crate::{
    ATTACH_TASKS, CHECKS, Evidence, Filter, codes, gauges,
    model::{JobStatus, JobSummary},
};

/// The service's description.
pub static DESCRIPTION: ServiceDescription = ServiceDescription {
    name: "evidence",
    title: "Evidence",
    summary: "Files attached to dispute cases once, retried row by row, with two summaries to the merchant.",
    kind: "file job",
    states: &["PROCESSING", "RETRYING", "COMPLETED"],
    owner: Some("Merchant"),
    actions: &[Action {
        confirmation: Some(Confirmation {
            label: "Include files that aren't due yet",
            hint: "Their backoff is cut short.",
            required: false,
        }),
        ..Action::new(
            "retry",
            "Retry",
            &["open", "being retried"],
            "Failed files that are due are retried now. Permanent failures and files without attempts left are \
             unchanged.",
        )
    }],
    repair: None,
    migrations: || vec![crate::migrations()],
    codes: codes::ALL,
    tables: &[&ATTACH_TASKS],
    redrive_guards: &[],
    checks: CHECKS,
    parked_reasons: &[],
    register_metrics: gauges::register,
    gauges: |pool| Box::pin(gauges::read(pool)),
};

impl Service for Evidence {
    fn description(&self) -> &'static ServiceDescription {
        &DESCRIPTION
    }

    fn timeline<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<Timeline>, sqlx::Error>> {
        timeline_by_uuid(id, |id| Self::timeline(self, id))
    }

    fn list<'a>(
        &'a self,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<ItemSummary>, Problem>> {
        Box::pin(async move {
            let filter = Filter {
                merchant: query.owner(),
                status: query.status()?,
            };
            let cursor = query.cursor.as_ref();
            let page = Self::list(self, &filter, cursor, ListQuery::limit()).await?;
            Ok(page.map(summary))
        })
    }

    fn facts<'a>(
        &'a self,
        id: &'a str,
        _row: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<Fact>, Problem>> {
        Box::pin(async move {
            let Ok(id) = id.parse() else {
                return Ok(Vec::new());
            };
            let Some(job) = self.get(id).await? else {
                return Ok(Vec::new());
            };
            let [attached, total, failed, pending] =
                [job.attached, job.total, job.failed, job.pending].map(count);
            Ok(vec![
                Fact::new("Merchant", job.merchant_id),
                Fact::new(
                    "Files",
                    format!(
                        "{attached} of {total} attached, {failed} failed, {pending} not tried yet"
                    ),
                ),
            ])
        })
    }

    fn act<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<String, Problem>> {
        Box::pin(async move {
            if request.action != "retry" {
                return Err(request.unknown());
            }
            let id = request.id.parse().map_err(|_| DESCRIPTION.unknown_item())?;
            let retried = self.retry(id, request.confirmed, request.operator).await?;
            let scheduled = i64::try_from(retried.scheduled_artifacts).unwrap_or(i64::MAX);
            let files = plural(scheduled, "file");
            let verb = if scheduled == 1 { "is" } else { "are" };
            let waiting = count(retried.waiting);
            Ok(format!(
                "{files} {verb} retried now; {waiting} not due yet."
            ))
        })
    }
}

fn summary(row: JobSummary) -> ItemSummary {
    let (state, tone) = match row.status {
        JobStatus::Processing => ("PROCESSING", Tone::Busy),
        JobStatus::Retrying => ("RETRYING", Tone::Waiting),
        JobStatus::Completed if row.failed > 0 => ("COMPLETED", Tone::Bad),
        JobStatus::Completed => ("COMPLETED", Tone::Good),
    };
    let sent: Vec<&str> = [(row.n1_sent_at, "N1"), (row.n2_sent_at, "N2")]
        .into_iter()
        .filter_map(|(sent, name)| sent.map(|_| name))
        .collect();
    ItemSummary {
        id: row.file_job_id.to_string(),
        summary: format!("{} of {}", plural(row.total, "file"), row.merchant_id),
        state: state.to_owned(),
        tone,
        progress: Some(Progress {
            done: row.attached,
            failed: row.failed,
            total: row.total,
        }),
        failed_attempts: 0,
        remark: match sent.as_slice() {
            [] => String::new(),
            sent => format!("{} sent", sent.join(" and ")),
        },
        accepted_at: row.created_at,
    }
}
