//! Authentication and authorization.
//!
//! With tokens configured, every route needs a valid one except those listed as open, and [`require`] demands a scope in
//! addition. So a forgotten `require` never makes a route public. Without tokens (the program then listens on loopback only)
//! every caller has every scope, and [`loopback`] keeps web pages from acting through a browser on this machine.

mod caller;
pub mod loopback;
mod require;
mod scope;
mod session_cookie;
mod token;

pub(crate) use caller::Authenticator;
pub use caller::Caller;
pub use require::{RequireLayer, RequireService, require};
pub use scope::{Scope, Scopes, UnknownScope};
pub use session_cookie::SessionSecret;
pub use token::{Authentication, NewToken, Token, TokenError, Tokens};
