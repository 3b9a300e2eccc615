//! `/dead/{table}/{id}`: one work item with its payload, attempts and audit entries.

use askama::Template;
use axum::{extract::State, response::Response};
use postrider_web::{Path, Problem, error_code::codes::NOT_FOUND};

use super::{
    super::{
        Console,
        format::{self, When},
        page::{Frame, answer},
        user::User,
    },
    view,
};
use crate::operate::dead::{AttemptView, AuditView};

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

struct AuditEntry {
    action: String,
    actor: String,
    reason: String,
    at: When,
}

impl From<AuditView> for AuditEntry {
    fn from(view: AuditView) -> Self {
        Self {
            action: view.action,
            actor: view.actor,
            reason: view.reason.unwrap_or_default(),
            at: view.at.into(),
        }
    }
}

#[derive(Template)]
#[template(path = "console/item.html")]
struct Page {
    frame: Frame,
    table: String,
    id: i64,
    dead: bool,
    key: String,
    facts: Vec<Fact>,
    attempts: Vec<Attempt>,
    audit: Vec<AuditEntry>,
    payload: Vec<(String, String)>,
    row: Vec<(String, String)>,
    timeline: String,
}

/// `/dead/{table}/{id}`
pub(in super::super) async fn page(
    State(console): State<Console>,
    user: User,
    Path((table, id)): Path<(String, i64)>,
) -> Result<Response, Problem> {
    let item = console.operate.item(&table, id).await?.ok_or_else(|| {
        Problem::new(
            &NOT_FOUND,
            "There is no such item: it never existed, or it is done or archived and its row was deleted.",
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
        let failure = [
            ("Code", failure.code),
            ("Category", failure.category),
            ("Message", failure.message),
        ];
        facts.extend(
            failure
                .into_iter()
                .filter_map(|(name, value)| value.map(|value| Fact { name, value })),
        );
    }
    answer(&Page {
        frame: Frame::new(format!("{table} {id}"), "dead", &user),
        dead: item.dead,
        key: view::key(&table, id),
        facts,
        attempts: item.attempts.into_iter().map(Attempt::from).collect(),
        audit: item.audit.into_iter().map(AuditEntry::from).collect(),
        payload: format::fields(&item.payload),
        row: format::fields(&item.row),
        timeline: format!("/trace/{}", format::in_path(&view::key(&table, id))),
        table,
        id,
    })
}
