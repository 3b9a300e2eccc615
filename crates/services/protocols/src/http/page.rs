//! The result as a page that a reviewer can read: no script, nothing from other hosts.

use askama::Template;
use axum::{extract::State, response::Html};
use postrider_web::{Path, Problem};

use super::{Protocols, not_found, read_id};
use crate::model::{Age, AgeUnit, Comparator, Criterion, Kind, Measure, ProtocolView, Status};

#[derive(Template)]
#[template(path = "protocol.html")]
struct Page<'a> {
    protocol: &'a ProtocolView,
    status: &'static str,
    said: &'static str,
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
    let view = protocols.show(read_id(&id)?).await?;
    let view = view.ok_or_else(not_found)?;
    Page::of(&view)
        .render()
        .map(Html)
        .map_err(Problem::internal)
}

impl<'a> Page<'a> {
    fn of(protocol: &'a ProtocolView) -> Self {
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
            said: said(protocol.status),
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
        notes.push("says what must not be the case".to_owned());
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

/// What a state means for whoever reads the page.
fn said(status: Status) -> &'static str {
    match status {
        Status::Uploaded => "It was uploaded; extraction will begin.",
        Status::Extracting => "The criteria are being looked for.",
        Status::ExtractionFailed => "Extraction failed and is tried again by itself.",
        Status::Grounding => "Terms are being mapped to codes.",
        Status::GroundingFailed => "Grounding failed and is tried again by itself.",
        Status::PendingReview => "It waits for your review.",
        Status::Complete => "It was reviewed and is complete.",
        Status::DeadLetter => "It was given up. Mend the cause and retry it.",
        Status::Archived => "It was given up long ago and is archived.",
    }
}
