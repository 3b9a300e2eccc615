//! In with a token, and out again.

use askama::Template;
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use postrider_web::{Problem, Query, auth::Visit};
use serde::Deserialize;

use super::{
    Console,
    page::{Frame, answer_with},
    user::{Form, give, is_https, safe_path, take, visit_of},
};

/// Where the login page is.
pub(super) const PATH: &str = "/login";

#[derive(Template)]
#[template(path = "console/login.html")]
struct Page {
    frame: Frame,
    next: String,
    refused: bool,
}

/// Where to go afterwards.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    next: String,
}

/// The form. Whoever needs none goes on.
pub(super) async fn page(
    State(console): State<Console>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Problem> {
    let (visit, is_new) = visit_of(&headers);
    let known = !console.sessions.are_needed()
        || (!is_new && console.sessions.caller(&visit).await?.is_some());
    if known {
        return Ok(see(safe_path(&wanted.next)));
    }
    let mut response = form(&visit, &wanted.next, false)?;
    if is_new {
        give(&visit, &console, is_https(&headers), &mut response);
    }
    Ok(response)
}

/// A token that is known opens a session, under a new secret: one that somebody planted before is worth nothing.
pub(super) async fn enter(
    State(console): State<Console>,
    headers: HeaderMap,
    form_sent: Form,
) -> Result<Response, Problem> {
    let next = form_sent.get("next");
    let presented = form_sent.get("token").trim();
    let Some(token) = console.sessions.recognise(presented) else {
        let (visit, _) = visit_of(&headers);
        return form(&visit, next, true);
    };
    let visit = Visit::generate();
    console.sessions.open(&visit, token).await?;
    tracing::info!(caller = token.name(), "logged in at the console");
    let mut response = see(safe_path(next));
    give(&visit, &console, is_https(&headers), &mut response);
    Ok(response)
}

/// Ends the session in every process.
pub(super) async fn leave(
    State(console): State<Console>,
    headers: HeaderMap,
    _: Form,
) -> Result<Response, Problem> {
    let (visit, _) = visit_of(&headers);
    console.sessions.close(&visit).await?;
    let mut response = see(PATH);
    take(is_https(&headers), &mut response);
    Ok(response)
}

fn form(visit: &Visit, next: &str, refused: bool) -> Result<Response, Problem> {
    let frame = Frame {
        form: visit.form_token(),
        ..Frame::bare("Log in")
    };
    let page = Page {
        frame,
        next: safe_path(next).to_owned(),
        refused,
    };
    let status = if refused {
        StatusCode::UNAUTHORIZED
    } else {
        StatusCode::OK
    };
    answer_with(status, &page)
}

/// Go there with a GET.
pub(super) fn see(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned())]).into_response()
}
