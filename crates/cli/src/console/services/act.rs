//! Doing something to one job: asked for, shown with what it would change, done under the operator's name, and told.

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use postrider::lease::Operator;
use postrider_web::{Path, Problem, Scope, error_code::codes::INVALID_VALUE};

use super::{
    super::{
        Console, format,
        page::{Frame, answer_with},
        user::{Form, User},
    },
    about::{self, Fact},
    action::Deed,
};

/// The longest reason, in characters.
const LONGEST_REASON: usize = 500;

#[derive(Template)]
#[template(path = "console/deed.html")]
struct Page {
    frame: Frame,
    deed: Deed,
    id: String,
    timeline: String,
    facts: Vec<Fact>,
    reason: String,
    /// What came of it, once it is done.
    done: Option<String>,
    refused: Option<String>,
}

/// `POST /services/{name}/act`
pub(in super::super) async fn act(
    State(console): State<Console>,
    visitor: User,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Problem> {
    visitor.caller.must_have(Scope::Operate)?;
    let deed = Deed::read(&name, form.get("do")).ok_or_else(|| {
        Problem::new(
            &INVALID_VALUE,
            "The form asks for nothing that can be done.",
        )
        .field("do", "is nothing that this service does")
    })?;
    let id = form.get("id");
    let reason = form.get("reason").trim();
    let mut page = Page {
        frame: Frame::new(deed.verb(), deed.service().name(), &visitor),
        deed,
        id: id.to_owned(),
        timeline: format!("/trace/{}", format::in_path(id)),
        facts: about::facts(&console, deed, id).await?,
        reason: reason.to_owned(),
        done: None,
        refused: None,
    };
    if form.get("sure") != "yes" {
        return answer_with(StatusCode::OK, &page);
    }
    let ticked = form.get("tick") == "yes";
    if let Some(missing) = missing(deed, reason, ticked) {
        page.refused = Some(missing);
        return answer_with(StatusCode::UNPROCESSABLE_ENTITY, &page);
    }
    let operator = Operator::new(visitor.caller.name()).because(reason);
    let status = match deed.perform(&console.apis, id, ticked, &operator).await {
        Ok(told) => {
            page.facts = about::facts(&console, deed, id).await?;
            page.done = Some(told);
            StatusCode::OK
        }
        // Another was quicker, or it can't be: said where it was asked for.
        Err(problem) if problem.status().is_client_error() => {
            page.refused = Some(problem.details().detail.clone());
            problem.status()
        }
        Err(problem) => return Err(problem),
    };
    answer_with(status, &page)
}

/// What the form lacks.
fn missing(deed: Deed, reason: &str, ticked: bool) -> Option<String> {
    if reason.is_empty() {
        return Some("Say why: the audit keeps it beside your name.".to_owned());
    }
    if reason.chars().count() > LONGEST_REASON {
        return Some(format!("Say it in at most {LONGEST_REASON} characters."));
    }
    let tick = deed.tick().filter(|tick| tick.needed && !ticked)?;
    Some(format!("Tick “{}” if that is meant.", tick.says))
}
