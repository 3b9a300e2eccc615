//! What the program knows about exports: states, actions, schema, and how the console lists and changes them.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use postrider_inspect::timeline::Timeline;
use postrider_web::{
    Page, Problem,
    service::{
        Action, ActionRequest, Fact, ItemSummary, ListQuery, Progress as Parts, Service,
        ServiceDescription, Tone,
    },
    text::{count, plural},
};
use serde_json::Value;

use crate::{
    CHECKS, EXPORT_JOB_INPUT, Exports, Filter, PARKED_REASONS, codes, gauges,
    model::{JobStatus, JobSummary, Progress},
};

/// The service's description.
pub static DESCRIPTION: ServiceDescription = ServiceDescription {
    name: "exports",
    title: "Exports",
    summary: "A batch of inputs in, one file per input out to the object store.",
    kind: "export job",
    states: &["SUBMITTED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"],
    owner: None,
    actions: &[
        Action {
            destructive: true,
            ..Action::new(
                "cancel",
                "Cancel",
                &["SUBMITTED", "RUNNING"],
                "Running inputs finish and keep their files; no other input starts. A cancelled job can't be redriven.",
            )
        },
        Action::new(
            "redrive",
            "Redrive",
            &["FAILED"],
            "Failed inputs start again with fresh attempts, and inputs that haven't started continue. Existing files \
             are kept.",
        ),
    ],
    repair: None,
    migrations: || vec![crate::migrations()],
    codes: codes::ALL,
    tables: &[&EXPORT_JOB_INPUT],
    redrive_guards: &[],
    checks: CHECKS,
    parked_reasons: PARKED_REASONS,
    register_metrics: gauges::register,
    gauges: |pool| Box::pin(gauges::read(pool)),
};

impl Service for Exports {
    fn description(&self) -> &'static ServiceDescription {
        &DESCRIPTION
    }

    fn timeline<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<Timeline>, sqlx::Error>> {
        Box::pin(Self::timeline(self, id))
    }

    fn list<'a>(
        &'a self,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<ItemSummary>, Problem>> {
        Box::pin(async move {
            let filter = Filter {
                status: query.status()?,
                ..Filter::default()
            };
            let cursor = query.cursor.as_ref();
            let page = Self::list(self, &filter, cursor, ListQuery::limit()).await?;
            // Only open jobs are counted: a job may have a hundred thousand inputs.
            let open: Vec<&str> = page
                .items
                .iter()
                .filter(|job| job.status.is_open())
                .map(|job| job.job_id.as_str())
                .collect();
            let progress = self.progress_of(&open).await?;
            let progress: HashMap<String, Progress> = progress
                .into_iter()
                .map(|progress| (progress.job_id.clone(), progress))
                .collect();
            Ok(page.map(|row| {
                let progress = progress.get(&row.job_id);
                summary(row, progress)
            }))
        })
    }

    fn facts<'a>(
        &'a self,
        id: &'a str,
        _row: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<Fact>, Problem>> {
        Box::pin(async move {
            let Some(progress) = self.progress(id).await? else {
                return Ok(Vec::new());
            };
            let [done, total, running, failed] = [
                progress.done,
                progress.total,
                progress.running,
                progress.failed,
            ]
            .map(count);
            Ok(vec![
                Fact::new(
                    "Inputs",
                    format!("{done} of {total} done, {running} running, {failed} failed"),
                ),
                Fact::new("Error", progress.error_message.unwrap_or_default()),
            ])
        })
    }

    fn act<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<String, Problem>> {
        Box::pin(async move {
            match request.action {
                "cancel" => {
                    self.cancel(request.id, request.operator).await?;
                    Ok(
                        "The job is cancelled. Running inputs finish; no other input starts."
                            .to_owned(),
                    )
                }
                "redrive" => Ok(match self.redrive(request.id, request.operator).await? {
                    0 => "No failed input was left; the inputs that hadn't started continue."
                        .to_owned(),
                    1 => "1 input starts again.".to_owned(),
                    many => format!("{many} inputs start again."),
                }),
                _ => Err(request.unknown()),
            }
        })
    }
}

fn summary(row: JobSummary, progress: Option<&Progress>) -> ItemSummary {
    let total = i64::from(row.total);
    let parts = |done, failed| Parts {
        done,
        failed,
        total,
    };
    ItemSummary {
        summary: plural(total, "file"),
        id: row.job_id,
        state: row.status.as_str().to_owned(),
        tone: match row.status {
            JobStatus::Submitted => Tone::Waiting,
            JobStatus::Running => Tone::Busy,
            JobStatus::Completed => Tone::Good,
            JobStatus::Failed => Tone::Bad,
            JobStatus::Cancelled => Tone::Quiet,
        },
        progress: match (row.status, progress) {
            (JobStatus::Completed, _) => Some(parts(total, 0)),
            (_, Some(progress)) => Some(parts(progress.done, progress.failed)),
            (_, None) => None,
        },
        failed_attempts: 0,
        remark: row.error_message.unwrap_or_default(),
        accepted_at: row.requested_at,
    }
}
