//! `/dead/{table}/{id}`: one letter with its payload, its attempts and what people did to it.

use askama::Template;
use axum::{extract::State, response::Response};
use postrider_web::{Path, Problem, error_code::codes::NOT_FOUND};
use serde_json::Value;

use super::{
    super::{
        Console,
        format::{self, When},
        page::{Frame, answer},
        user::User,
    },
    view,
};
use crate::operate::dead::{AttemptView, DeedView};

struct Fact {
    name: &'static str,
    value: String,
}

struct Attempt {
    number: i32,
    outcome: String,
    class: &'static str,
    code: String,
    message: String,
    took: String,
    worker: String,
    ended: When,
}

impl From<AttemptView> for Attempt {
    fn from(view: AttemptView) -> Self {
        let took = (view.ended_at - view.started_at).as_seconds_f64();
        Self {
            number: view.attempt,
            class: match view.outcome.as_str() {
                "done" => "good",
                "dead" => "bad",
                _ => "waiting",
            },
            outcome: view.outcome,
            code: view.code.unwrap_or_default(),
            message: view.message.unwrap_or_default(),
            took: format::span(took),
            worker: view.worker,
            ended: view.ended_at.into(),
        }
    }
}

struct Deed {
    action: String,
    actor: String,
    reason: String,
    at: When,
}

impl From<DeedView> for Deed {
    fn from(view: DeedView) -> Self {
        Self {
            action: view.action,
            actor: view.actor,
            reason: view.reason.unwrap_or_default(),
            at: view.at.into(),
        }
    }
}

#[derive(Template)]
#[template(path = "console/letter.html")]
struct Page {
    frame: Frame,
    table: String,
    id: i64,
    dead: bool,
    key: String,
    facts: Vec<Fact>,
    attempts: Vec<Attempt>,
    deeds: Vec<Deed>,
    payload: String,
    row: String,
    timeline: String,
}

/// `/dead/{table}/{id}`
pub(in super::super) async fn page(
    State(console): State<Console>,
    visitor: User,
    Path((table, id)): Path<(String, i64)>,
) -> Result<Response, Problem> {
    let item = console.operate.item(&table, id).await?.ok_or_else(|| {
        Problem::new(
            &NOT_FOUND,
            "No such item is there: it was never, or it is done or archived and its row is gone.",
        )
    })?;
    let mut facts = vec![Fact {
        name: "Service",
        value: item.service,
    }];
    let failure = item
        .attempts
        .iter()
        .rev()
        .find(|attempt| attempt.code.is_some());
    if let Some(failure) = failure {
        let failure = failure.clone();
        let told = [
            ("Code", failure.code),
            ("Category", failure.category),
            ("Message", failure.message),
        ];
        facts.extend(
            told.into_iter()
                .filter_map(|(name, value)| value.map(|value| Fact { name, value })),
        );
    }
    answer(&Page {
        frame: Frame::new(format!("{table} {id}"), "dead", &visitor),
        dead: item.dead,
        key: view::key(&table, id),
        facts,
        attempts: item.attempts.into_iter().map(Attempt::from).collect(),
        deeds: item.audit.into_iter().map(Deed::from).collect(),
        payload: pretty(&item.payload),
        row: pretty(&item.row),
        timeline: format!("/trace/{}", format::in_path(&view::key(&table, id))),
        table,
        id,
    })
}

/// As people read JSON.
fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
