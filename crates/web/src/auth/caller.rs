//! The caller of a request, as the rest of the program sees it.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request};
use http::request::Parts;
use http::{HeaderValue, header};

use super::{Authentication, Scope, Scopes, Tokens};
use crate::error_code::codes;
use crate::problem::Problem;

/// Who calls: what audit entries name and scopes are asked of. As an extractor it refuses callers
/// who are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    name: Arc<str>,
    scopes: Scopes,
}

impl Caller {
    /// A caller of this name. A layer outside the shell that knows callers by other means than
    /// tokens (a console session) puts one into the request's extensions.
    #[must_use]
    pub fn new(name: &str, scopes: Scopes) -> Self {
        Self {
            name: Arc::from(name),
            scopes,
        }
    }

    /// Anybody on this machine, when no tokens are configured.
    #[must_use]
    pub fn local() -> Self {
        Self::new("local", Scopes::all())
    }

    /// The token's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the caller may do.
    #[must_use]
    pub fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// Refuses a caller without the scope.
    ///
    /// # Errors
    /// 403, naming the scope that is needed.
    pub fn must_have(&self, scope: Scope) -> Result<(), Problem> {
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
        known.ok_or_else(|| refusal(&Authentication::Missing))
    }
}

/// The 401 answer.
pub(super) fn refusal(authentication: &Authentication) -> Problem {
    let (detail, challenge) = match authentication {
        Authentication::Invalid => (
            "The Authorization header holds no valid token: check that it reads `Bearer <token>` and that the token is configured here.",
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

/// What the authentication layer goes by.
#[derive(Debug, Clone)]
pub(crate) struct Doorkeeper {
    pub tokens: Arc<Tokens>,
    pub open: Arc<[String]>,
}

impl Doorkeeper {
    /// Open routes by their pattern. Unknown paths are open too: their answer says nothing.
    fn lets_anybody_in(&self, request: &Request) -> bool {
        match request.extensions().get::<MatchedPath>() {
            Some(path) => self.open.iter().any(|open| open == path.as_str()),
            None => true,
        }
    }

    /// Finds out who calls, tells the request, and refuses strangers on routes that are not open.
    pub(crate) fn introduce(&self, request: &mut Request) -> Result<Option<Caller>, Problem> {
        let caller = match self.tokens.authenticate(request.headers()) {
            Authentication::Known(caller) => Some(caller),
            unknown => {
                // A layer further out may have known the caller by other means.
                let introduced = request.extensions().get::<Caller>().cloned();
                let introduced = introduced.filter(|_| unknown == Authentication::Missing);
                if introduced.is_none() && !self.lets_anybody_in(request) {
                    return Err(refusal(&unknown));
                }
                introduced
            }
        };
        request.extensions_mut().remove::<Caller>();
        if let Some(caller) = &caller {
            request.extensions_mut().insert(caller.clone());
        }
        Ok(caller)
    }
}
