//! `/trace/{id}`: the timeline of an id, and the search that leads there.

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use postrider_web::{Path, Problem, Query, error_code::codes::NOT_FOUND, service::Action};
use serde::Deserialize;
use time::OffsetDateTime;

use super::{
    Console,
    format::{self, When},
    login::see,
    page::{Frame, answer, answer_with},
    services,
    user::User,
};
use crate::operate::timeline::{Subject, TimelineEvent, TimelineView};

/// Maximum number of events on a page; the API returns all of them.
const MAX_EVENTS: usize = 500;

struct Item {
    kind: String,
    key: String,
    link: String,
    state: String,
    class: &'static str,
    service: String,
    work_items: Vec<WorkItem>,
    actions: Vec<&'static Action>,
}

struct WorkItem {
    name: String,
    link: String,
}

struct Event {
    at: When,
    since: String,
    what: String,
    detail: String,
    class: &'static str,
    of: String,
    link: String,
}

#[derive(Template)]
#[template(path = "console/timeline.html")]
struct Page {
    frame: Frame,
    id: String,
    items: Vec<Item>,
    events: Vec<Event>,
    cut: bool,
}

/// `/trace/{id}`
pub(super) async fn page(
    State(console): State<Console>,
    user: User,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let timeline = console.operate.timeline(&id).await?.ok_or_else(|| {
        Problem::new(
            &NOT_FOUND,
            "Nothing has this id. Enter the complete id or key.",
        )
    })?;
    let TimelineView {
        id,
        subjects,
        events,
    } = timeline;
    let cut = events.len() > MAX_EVENTS;
    let mut before = None;
    let events = events.into_iter().take(MAX_EVENTS).map(|event| {
        let shown = shown(event, before);
        before = Some(shown.1);
        shown.0
    });
    answer(&Page {
        events: events.collect(),
        frame: Frame::new(id.clone(), "", &user),
        id,
        items: subjects.into_iter().take(MAX_EVENTS).map(item).collect(),
        cut,
    })
}

/// The search query.
#[derive(Debug, Deserialize)]
pub(super) struct SearchQuery {
    #[serde(default)]
    q: String,
}

#[derive(Template)]
#[template(path = "console/search.html")]
struct NotFound {
    frame: Frame,
}

/// `/search?q=`: goes to the timeline of what has this id or key.
pub(super) async fn search(
    State(console): State<Console>,
    user: User,
    Query(query): Query<SearchQuery>,
) -> Result<Response, Problem> {
    let id = query.q.trim();
    if !console.operate.search(id).await?.is_empty() {
        return Ok(see(&format!("/trace/{}", format::in_path(id))));
    }
    let frame = Frame {
        searched: id.to_owned(),
        ..Frame::new("Search", "", &user)
    };
    // A search without a result is not an error.
    answer_with(StatusCode::OK, &NotFound { frame })
}

fn item(subject: Subject) -> Item {
    Item {
        actions: services::offered(&subject),
        class: class(&subject.state),
        link: format!("/trace/{}", format::in_path(&subject.key)),
        kind: subject.kind,
        key: subject.key,
        state: subject.state,
        service: subject.service,
        work_items: subject
            .items
            .into_iter()
            .take(20)
            .map(|name| WorkItem {
                link: item_link(&name).unwrap_or_default(),
                name,
            })
            .collect(),
    }
}

fn shown(event: TimelineEvent, before: Option<OffsetDateTime>) -> (Event, OffsetDateTime) {
    let since = before.map(|before| (event.at - before).as_seconds_f64());
    let shown = Event {
        at: event.at.into(),
        since: since
            .filter(|since| *since >= 0.001)
            .map_or_else(String::new, format::span),
        class: match event.good {
            Some(true) => "good",
            Some(false) => "bad",
            None => "",
        },
        what: event.what,
        detail: event.detail.map(format::detail).unwrap_or_default(),
        link: item_link(&event.subject).unwrap_or_default(),
        of: event.subject,
    };
    (shown, event.at)
}

/// The page of a work item, `table/number`.
fn item_link(subject: &str) -> Option<String> {
    let (table, number) = subject.rsplit_once('/')?;
    let number: i64 = number.parse().ok()?;
    let known = crate::services::work_tables().any(|known| known.name == table);
    known.then(|| format!("/dead/{}/{number}", format::in_path(table)))
}

/// The style class of a state, in the words of all services.
fn class(state: &str) -> &'static str {
    let state = state.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| state.contains(word));
    if has(&["fail", "dead", "abort", "cancel", "error"]) {
        "bad"
    } else if has(&["succe", "complet", "done", "deliver", "publish", "attached"]) {
        "good"
    } else if has(&[
        "retry",
        "wait",
        "pending",
        "review",
        "submitted",
        "uploaded",
        "ready",
    ]) {
        "waiting"
    } else if has(&[
        "running",
        "sending",
        "processing",
        "extracting",
        "grounding",
        "leased",
    ]) {
        "busy"
    } else {
        "quiet"
    }
}
