//! `/trace/{id}`: everything that happened to one thing, from the request to the last notification; and the search that
//! leads there.

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
use crate::operate::trace::{Subject, TimelineEvent, TimelineView};

/// More than this nobody reads on one page; the API has all of it.
const MOST: usize = 500;

struct Thing {
    kind: String,
    key: String,
    link: String,
    state: String,
    class: &'static str,
    service: String,
    items: Vec<Item>,
    actions: Vec<&'static Action>,
}

struct Item {
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
#[template(path = "console/trace.html")]
struct Page {
    frame: Frame,
    id: String,
    things: Vec<Thing>,
    events: Vec<Event>,
    cut: bool,
}

/// `/trace/{id}`
pub(super) async fn page(
    State(console): State<Console>,
    visitor: User,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let timeline = console.operate.trace(&id).await?.ok_or_else(|| {
        Problem::new(
            &NOT_FOUND,
            "Nothing is known by this id. Ids and keys are found as a whole, not by a part.",
        )
    })?;
    let TimelineView {
        id,
        subjects,
        events,
    } = timeline;
    let cut = events.len() > MOST;
    let mut before = None;
    let events = events.into_iter().take(MOST).map(|event| {
        let shown = shown(event, before);
        before = Some(shown.1);
        shown.0
    });
    answer(&Page {
        events: events.collect(),
        frame: Frame::new(id.clone(), "", &visitor),
        id,
        things: subjects.into_iter().take(MOST).map(thing).collect(),
        cut,
    })
}

/// What is looked for.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
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
    visitor: User,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Problem> {
    let wanted = wanted.q.trim();
    if !console.operate.search(wanted).await?.is_empty() {
        return Ok(see(&format!("/trace/{}", format::in_path(wanted))));
    }
    let frame = Frame {
        searched: wanted.to_owned(),
        ..Frame::new("Search", "", &visitor)
    };
    // Nothing is missing that a program would look for: the page is as it should be.
    answer_with(StatusCode::OK, &NotFound { frame })
}

fn thing(subject: Subject) -> Thing {
    Thing {
        actions: services::offered(&subject),
        class: class(&subject.state),
        link: format!("/trace/{}", format::in_path(&subject.key)),
        kind: subject.kind,
        key: subject.key,
        state: subject.state,
        service: subject.service,
        items: subject
            .items
            .into_iter()
            .take(20)
            .map(|name| Item {
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
        detail: event.detail.unwrap_or_default(),
        link: item_link(&event.subject).unwrap_or_default(),
        of: event.subject,
    };
    (shown, event.at)
}

/// An item of work, `table/number`, has a page of its own.
fn item_link(subject: &str) -> Option<String> {
    let (table, number) = subject.rsplit_once('/')?;
    let number: i64 = number.parse().ok()?;
    let known = crate::services::work_tables().any(|known| known.name == table);
    known.then(|| format!("/dead/{}/{number}", format::in_path(table)))
}

/// What a state means, in the words of all services.
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
