//! The caller of a request.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request};
use http::request::Parts;
use http::{HeaderValue, header};

use super::{Authentication, Scope, Scopes, Tokens};
use crate::error_code::codes;
use crate::problem::Problem;

/// The authenticated caller, as named in audit entries. As an extractor it rejects unauthenticated requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    name: Arc<str>,
    scopes: Scopes,
}

impl Caller {
    /// A caller with this name. An outer layer that authenticates by other means than tokens (a console session) puts one into the
    /// request's extensions.
    #[must_use]
    pub fn new(name: &str, scopes: Scopes) -> Self {
        Self {
            name: Arc::from(name),
            scopes,
        }
    }

    /// Any caller on this machine, when no tokens are configured.
    #[must_use]
    pub fn local() -> Self {
        Self::new("local", Scopes::all())
    }

    /// The token's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The caller's scopes.
    #[must_use]
    pub fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// Rejects a caller without the scope.
    ///
    /// # Errors
    /// 403 with the required scope.
    pub fn require_scope(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(scope) {
            return Ok(());
        }
        let challenge = match scope {
            Scope::Submit => r#"Bearer error="insufficient_scope", scope="submit""#,
            Scope::Read => r#"Bearer error="insufficient_scope", scope="read""#,
            Scope::Operate => r#"Bearer error="insufficient_scope", scope="operate""#,
            Scope::Internal => r#"Bearer error="insufficient_scope", scope="internal""#,
        };
        Err(Problem::new(
            &codes::FORBIDDEN,
            format!(
                "This needs the scope `{scope}`; the token `{}` has: {}.",
                self.name, self.scopes
            ),
        )
        .with("required_scope", scope.name())
        .header(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static(challenge),
        ))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let known = parts.extensions.get::<Caller>().cloned();
        known.ok_or_else(|| unauthorized(&Authentication::Missing))
    }
}

/// The 401 response.
pub(super) fn unauthorized(authentication: &Authentication) -> Problem {
    let (detail, challenge) = match authentication {
        Authentication::Invalid => (
            "The Authorization header has no valid token: check that it reads `Bearer <token>` and that the token is configured here.",
            r#"Bearer realm="postrider", error="invalid_token""#,
        ),
        Authentication::Missing | Authentication::Known(_) => (
            "Send a token in the header `Authorization: Bearer <token>`.",
            r#"Bearer realm="postrider""#,
        ),
    };
    Problem::new(&codes::UNAUTHORIZED, detail).header(
        header::WWW_AUTHENTICATE,
        HeaderValue::from_static(challenge),
    )
}

/// Authenticates requests.
#[derive(Debug, Clone)]
pub(crate) struct Authenticator {
    pub tokens: Arc<Tokens>,
    pub open: Arc<[String]>,
}

impl Authenticator {
    /// Is the route open? By pattern; unknown paths are open, too, because their response reveals nothing.
    fn is_open(&self, request: &Request) -> bool {
        match request.extensions().get::<MatchedPath>() {
            Some(path) => self.open.iter().any(|open| open == path.as_str()),
            None => true,
        }
    }

    /// Adds the caller to the request's extensions. Rejects unauthenticated requests unless the route is open.
    pub(crate) fn authenticate(&self, request: &mut Request) -> Result<Option<Caller>, Problem> {
        let caller = match self.tokens.authenticate(request.headers()) {
            Authentication::Known(caller) => Some(caller),
            unknown => {
                // An outer layer may have authenticated the caller by other means.
                let provided = request.extensions().get::<Caller>().cloned();
                let provided = provided.filter(|_| unknown == Authentication::Missing);
                if provided.is_none() && !self.is_open(request) {
                    return Err(unauthorized(&unknown));
                }
                provided
            }
        };
        request.extensions_mut().remove::<Caller>();
        if let Some(caller) = &caller {
            request.extensions_mut().insert(caller.clone());
        }
        Ok(caller)
    }
}
