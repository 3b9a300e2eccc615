//! What the program knows about protocols: states, actions, schema, and how the console lists and reviews them.

use futures_util::future::BoxFuture;
use postrider_inspect::timeline::Timeline;
use postrider_web::{
    Page, Problem,
    service::{
        Action, ActionRequest, Fact, ItemSummary, ListQuery, Progress, Service, ServiceDescription,
        Tone, timeline_by_uuid,
    },
};
use serde_json::Value;

use crate::{
    CHECKS, OUTBOX, Protocols, codes, gauges,
    model::{Criterion, Decision, Kind, Status, Summary},
};

/// Steps from the upload to the approval.
const STEPS: i64 = 4;

/// The service's description.
pub static DESCRIPTION: ServiceDescription = ServiceDescription {
    name: "protocols",
    title: "Protocols",
    summary: "Clinical protocols, from text or PDF to reviewed eligibility criteria.",
    kind: "protocol",
    states: &[
        "uploaded",
        "extracting",
        "extraction_failed",
        "grounding",
        "grounding_failed",
        "pending_review",
        "complete",
        "dead_letter",
        "archived",
    ],
    owner: None,
    actions: &[
        Action::new(
            "retry",
            "Retry",
            &["extraction_failed", "grounding_failed", "dead_letter"],
            "The protocol starts again with the extraction; what is left of the previous run is cancelled.",
        ),
        Action::new(
            "approve",
            "Approve",
            &["pending_review"],
            "The criteria are correct: the protocol is complete.",
        ),
        Action {
            destructive: true,
            ..Action::new(
                "reject",
                "Reject",
                &["pending_review"],
                "The criteria are wrong: they are discarded, and the protocol goes back to the extraction.",
            )
        },
    ],
    repair: None,
    migrations: || vec![crate::migrations()],
    codes: codes::ALL,
    tables: &[&OUTBOX],
    redrive_guards: &[],
    checks: CHECKS,
    parked_reasons: &[],
    register_metrics: gauges::register,
    gauges: |pool| Box::pin(gauges::read(pool)),
};

impl Service for Protocols {
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
            let (status, cursor) = (query.status()?, query.cursor.as_ref());
            let page = Self::list(self, status, cursor, ListQuery::limit()).await?;
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
            let Some(view) = self.get(id).await? else {
                return Ok(Vec::new());
            };
            let mut facts = vec![
                Fact::new("Title", view.title),
                Fact::new("Error", view.error_reason.unwrap_or_default()),
            ];
            // All of them: the reviewer has to read every criterion.
            facts.extend(view.criteria.iter().map(criterion));
            Ok(facts)
        })
    }

    fn act<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<String, Problem>> {
        Box::pin(async move {
            let id = request.id.parse().map_err(|_| DESCRIPTION.unknown_item())?;
            let operator = request.operator;
            match request.action {
                "retry" => {
                    self.retry(id, operator).await?;
                    Ok("The protocol starts again with the extraction.".to_owned())
                }
                "approve" => {
                    self.review(id, Decision::Approve, operator).await?;
                    Ok("The protocol is complete.".to_owned())
                }
                "reject" => {
                    self.review(id, Decision::Reject, operator).await?;
                    Ok("The protocol goes back to the extraction.".to_owned())
                }
                _ => Err(request.unknown()),
            }
        })
    }
}

fn criterion(criterion: &Criterion) -> Fact {
    let name = match criterion.kind {
        Kind::Inclusion => "Inclusion",
        Kind::Exclusion => "Exclusion",
    };
    let number = criterion.number.as_deref().unwrap_or("•");
    let mut value = format!("{number} {}", criterion.text);
    let terms: Vec<String> = criterion
        .terms
        .iter()
        .map(|term| format!("{} {}", term.code, term.label))
        .collect();
    if !terms.is_empty() {
        value = format!("{value} [{}]", terms.join("; "));
    }
    Fact::new(name, value)
}

fn summary(row: Summary) -> ItemSummary {
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
    ItemSummary {
        id: row.id.to_string(),
        summary: row.title,
        state: row.status.as_str().to_owned(),
        tone,
        progress: done.map(|done| Progress {
            done,
            failed: 0,
            total: STEPS,
        }),
        failed_attempts: 0,
        remark: row.error_reason.unwrap_or_default(),
        accepted_at: row.created_at,
    }
}
