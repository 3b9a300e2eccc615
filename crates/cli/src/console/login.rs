//! Login with a token, and logout.

use askama::Template;
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use postrider_web::{Problem, Query, auth::SessionSecret};
use serde::Deserialize;

use super::{
    Console,
    page::{Frame, answer_with},
    user::{Form, is_https, remove_cookie, safe_path, set_cookie, visit_of},
};

/// Path of the login page.
pub(super) const PATH: &str = "/login";

#[derive(Template)]
#[template(path = "console/login.html")]
struct Page {
    frame: Frame,
    next: String,
    refused: bool,
}

/// Where to go after the login.
#[derive(Debug, Deserialize)]
pub(super) struct NextQuery {
    #[serde(default)]
    next: String,
}

/// The login form; redirects users who are already authenticated.
pub(super) async fn page(
    State(console): State<Console>,
    headers: HeaderMap,
    Query(query): Query<NextQuery>,
) -> Result<Response, Problem> {
    let (visit, is_new) = visit_of(&headers);
    let known = !console.sessions.are_needed()
        || (!is_new && console.sessions.caller(&visit).await?.is_some());
    if known {
        return Ok(see(safe_path(&query.next)));
    }
    let mut response = form(&visit, &query.next, false)?;
    if is_new {
        set_cookie(&visit, &console, is_https(&headers), &mut response);
    }
    Ok(response)
}

/// A valid token opens a session under a new secret, so that a planted cookie is worthless.
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
    let visit = SessionSecret::generate();
    console.sessions.open(&visit, token).await?;
    tracing::info!(caller = token.name(), "console login");
    let mut response = see(safe_path(next));
    set_cookie(&visit, &console, is_https(&headers), &mut response);
    Ok(response)
}

/// Ends the session, for all processes.
pub(super) async fn leave(
    State(console): State<Console>,
    headers: HeaderMap,
    _: Form,
) -> Result<Response, Problem> {
    let (visit, _) = visit_of(&headers);
    console.sessions.close(&visit).await?;
    let mut response = see(PATH);
    remove_cookie(is_https(&headers), &mut response);
    Ok(response)
}

fn form(visit: &SessionSecret, next: &str, refused: bool) -> Result<Response, Problem> {
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

/// Redirects with a GET.
pub(super) fn see(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned())]).into_response()
}
