//! Authentication of users, and protection of forms against cross-site requests.
//!
//! A user is known by a session, by the `Authorization` header, or, without configured tokens, by being on this machine.
//! Every browser gets a cookie with its first page; the token in our forms is derived from it.

use axum::{
    extract::{FromRequest, FromRequestParts, Request, State},
    http::{HeaderMap, HeaderName, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use postrider_web::{
    Caller, Problem, Scope,
    auth::SessionSecret,
    body,
    error_code::codes::{
        CROSS_ORIGIN, FORM_EXPIRED, INVALID_BODY, UNAUTHORIZED, UNSUPPORTED_MEDIA_TYPE,
    },
};

use super::{Console, format, login};

/// The cookie's name.
const COOKIE: &str = "postrider_visit";

/// Maximum size of a form, in bytes.
const MAX_FORM_SIZE: usize = 256 * 1024;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// An authenticated user.
#[derive(Debug, Clone)]
pub(super) struct User {
    /// The caller.
    pub caller: Caller,
    /// The source of the form token.
    pub visit: SessionSecret,
    /// Logged in with a session, so that they can log out.
    pub by_session: bool,
    /// Number of firing alerts.
    pub firing: usize,
}

impl User {
    /// May they change anything?
    pub fn may_operate(&self) -> bool {
        self.caller.scopes().contains(Scope::Operate)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let known = parts.extensions.get::<Self>().cloned();
        known.ok_or_else(|| Problem::internal("a console page has no user"))
    }
}

/// Lets users with the scope `read` through; redirects others to the login page.
pub(super) async fn admit(
    State(console): State<Console>,
    mut request: Request,
    next: Next,
) -> Response {
    let (visit, is_new) = visit_of(request.headers());
    let secure = is_https(request.headers());
    let (caller, by_session) = match request.extensions().get::<Caller>().cloned() {
        Some(caller) => (Some(caller), false),
        None if is_new => (None, false),
        None => match console.sessions.caller(&visit).await {
            Ok(caller) => (caller, true),
            Err(error) => return Problem::from(error).into_response(),
        },
    };
    let Some(caller) = caller else {
        return unauthenticated(&request);
    };
    if let Err(problem) = caller.require_scope(Scope::Read) {
        return problem.into_response();
    }
    request.extensions_mut().insert(User {
        caller: caller.clone(),
        visit: visit.clone(),
        by_session,
        firing: console.alerts.firing().len(),
    });
    let mut response = next.run(request).await;
    // For the access log.
    response.extensions_mut().insert(caller);
    if is_new {
        set_cookie(&visit, &console, secure, &mut response);
    }
    response
}

/// The session cookie of this browser, and whether it is new.
pub(super) fn visit_of(headers: &HeaderMap) -> (SessionSecret, bool) {
    match SessionSecret::from_cookie(headers, COOKIE) {
        Some(visit) => (visit, false),
        None => (SessionSecret::generate(), true),
    }
}

/// Sets the cookie.
pub(super) fn set_cookie(
    visit: &SessionSecret,
    console: &Console,
    secure: bool,
    response: &mut Response,
) {
    let cookie = visit.cookie(COOKIE, console.sessions.lasts(), secure);
    response.headers_mut().append(header::SET_COOKIE, cookie);
}

/// Removes the cookie.
pub(super) fn remove_cookie(secure: bool, response: &mut Response) {
    let cookie = SessionSecret::clear_cookie(COOKIE, secure);
    response.headers_mut().append(header::SET_COOKIE, cookie);
}

/// Did the browser use TLS? Only a proxy in front of us knows; a client that lies only makes its own cookie stricter.
pub(super) fn is_https(headers: &HeaderMap) -> bool {
    let proto = headers.get("x-forwarded-proto");
    proto.is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}

fn unauthenticated(request: &Request) -> Response {
    if request.method().is_safe() {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let login = format!("/login?next={}", format::in_query(path));
        return (StatusCode::SEE_OTHER, [(header::LOCATION, login)]).into_response();
    }
    Problem::new(
        &UNAUTHORIZED,
        "You are not logged in, or your session has expired. Nothing was changed. Log in and try again.",
    )
    .into_response()
}

/// A form that we sent to this user.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The value of a field; empty if it is missing.
    pub fn get(&self, name: &str) -> &str {
        let field = self.0.iter().find(|(field, _)| field == name);
        field.map_or("", |(_, value)| value)
    }

    /// All values of a field that may be repeated.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }
}

impl FromRequest<Console> for Form {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Console) -> Result<Self, Problem> {
        let headers = request.headers();
        let site = headers.get(FETCH_SITE);
        if site.is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(Problem::new(
                &CROSS_ORIGIN,
                "This form was sent from another origin. Nothing was changed.",
            ));
        }
        let kind = headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/x-www-form-urlencoded") {
            return Err(Problem::new(
                &UNSUPPORTED_MEDIA_TYPE,
                "The console expects forms as application/x-www-form-urlencoded.",
            ));
        }
        let visit = SessionSecret::from_cookie(headers, COOKIE);
        let bytes = body::read_up_to(request, MAX_FORM_SIZE).await?;
        let form = Self(url::form_urlencoded::parse(&bytes).into_owned().collect());
        let ours = visit.is_some_and(|visit| visit.verify_form_token(form.get("form")));
        if !ours {
            return Err(Problem::new(
                &FORM_EXPIRED,
                "This form does not belong to your session. Nothing was changed. Reload the page and try again.",
            ));
        }
        if form.0.iter().any(|(_, value)| value.contains('\0')) {
            return Err(Problem::new(
                &INVALID_BODY,
                "A field contains the NUL character, which can't be stored.",
            ));
        }
        Ok(form)
    }
}

/// Where to go after the login: always a path of this server.
pub(super) fn safe_path(path: &str) -> &str {
    let local = path.starts_with('/')
        && !path.starts_with("//")
        && !path.contains(['\\', '\r', '\n', '\t'])
        && path.is_ascii();
    if local && !path.starts_with(login::PATH) {
        path
    } else {
        "/"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_never_redirects_to_another_site() {
        for path in ["/", "/dead?filter=code:X", "/services/orders"] {
            assert_eq!(safe_path(path), path);
        }
        for path in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/login?next=/",
            "/a\r\nb",
        ] {
            assert_eq!(safe_path(path), "/", "{path:?}");
        }
    }
}
