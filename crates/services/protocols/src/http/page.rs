//! The protocol as a page for reviewers: no scripts, nothing from other hosts.

use askama::Template;
use axum::{extract::State, response::Html};
use postrider_web::{Path, Problem};

use super::{Protocols, get, parse_id};
use crate::model::{Age, AgeUnit, Comparator, Criterion, Kind, Measure, ProtocolView, Status};

#[derive(Template)]
#[template(path = "protocol.html")]
struct Page<'a> {
    protocol: &'a ProtocolView,
    status: &'static str,
    explanation: &'static str,
    file: String,
    last_failure: Option<String>,
    review: Option<String>,
    lists: Vec<List<'a>>,
}

struct List<'a> {
    heading: &'static str,
    items: Vec<Item<'a>>,
}

struct Item<'a> {
    number: &'a str,
    level: u8,
    text: &'a str,
    notes: Vec<String>,
    terms: &'a [crate::model::Term],
}

/// See a protocol as a page for reviewers.
#[utoipa::path(get, path = "/protocols/{id}/page", tag = "protocols", security(("bearer" = ["read"])), params(
    ("id" = String, Path, description = "the protocol's id")
), responses(
    (status = 200, description = "the page", body = String, content_type = "text/html"),
    (status = 404, description = "no such protocol"),
))]
pub(super) async fn get_page(
    State(protocols): State<Protocols>,
    Path(id): Path<String>,
) -> Result<Html<String>, Problem> {
    let view = get(&protocols, parse_id(&id)?).await?;
    Page::new(&view)
        .render()
        .map(Html)
        .map_err(Problem::internal)
}

impl<'a> Page<'a> {
    fn new(protocol: &'a ProtocolView) -> Self {
        let list = |kind: Kind, heading| List {
            heading,
            items: protocol
                .criteria
                .iter()
                .filter(|criterion| criterion.kind == kind)
                .map(item)
                .collect(),
        };
        let text = |pointer: &str| protocol.metadata.pointer(pointer).and_then(|v| v.as_str());
        Self {
            protocol,
            status: protocol.status.as_str(),
            explanation: explanation(protocol.status),
            file: text("/document/file_name").unwrap_or_default().to_owned(),
            last_failure: text("/last_failure/message").map(|message| {
                format!(
                    "{}: {message}",
                    text("/last_failure/step").unwrap_or_default()
                )
            }),
            review: text("/review/decision").map(|decision| {
                let by = text("/review/by").unwrap_or_default();
                let at = text("/review/at").unwrap_or_default();
                let reason = text("/review/reason").unwrap_or("no reason given");
                format!("{decision} by {by} at {at}: {reason}")
            }),
            lists: vec![
                list(Kind::Inclusion, "Inclusion criteria"),
                list(Kind::Exclusion, "Exclusion criteria"),
            ],
        }
    }
}

fn item(criterion: &Criterion) -> Item<'_> {
    let mut notes = Vec::new();
    notes.extend(criterion.age.map(|age| format!("age {}", age_text(age))));
    if criterion.negated {
        notes.push("negated".to_owned());
    }
    notes.extend(criterion.measures.iter().map(measure_text));
    Item {
        number: criterion.number.as_deref().unwrap_or("•"),
        level: criterion.level.min(3),
        text: &criterion.text,
        notes,
        terms: &criterion.terms,
    }
}

fn age_text(age: Age) -> String {
    let unit = match age.unit {
        AgeUnit::Years => "years",
        AgeUnit::Months => "months",
        AgeUnit::Weeks => "weeks",
        AgeUnit::Days => "days",
    };
    let min = age
        .min
        .map(|min| format!("{} {min}", if age.above_min { ">" } else { "≥" }));
    let max = age
        .max
        .map(|max| format!("{} {max}", if age.below_max { "<" } else { "≤" }));
    let range: Vec<String> = [min, max].into_iter().flatten().collect();
    format!("{} {unit}", range.join(" and "))
}

fn measure_text(measure: &Measure) -> String {
    let sign = match measure.comparator {
        Comparator::Below => "<",
        Comparator::AtMost => "≤",
        Comparator::Equal => "=",
        Comparator::AtLeast => "≥",
        Comparator::Above => ">",
    };
    format!("{sign} {} {}", measure.value, measure.unit)
        .trim_end()
        .to_owned()
}

/// What a state means for the reader of the page.
fn explanation(status: Status) -> &'static str {
    match status {
        Status::Uploaded => "Uploaded; extraction is next.",
        Status::Extracting => "The criteria are being extracted.",
        Status::ExtractionFailed => "Extraction failed and will be retried automatically.",
        Status::Grounding => "Terms are being mapped to codes.",
        Status::GroundingFailed => "Grounding failed and will be retried automatically.",
        Status::PendingReview => "Waiting for your review.",
        Status::Complete => "Reviewed and complete.",
        Status::DeadLetter => "A dead letter. Fix the cause, then retry it.",
        Status::Archived => "A dead letter that was archived.",
    }
}
