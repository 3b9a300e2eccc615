//! Who calls, and what they may do.
//!
//! With tokens configured, every route needs a valid one except those listed as open, and
//! [`require`] asks for a scope on top. Forgetting `require` therefore never opens a route to the
//! world. Without tokens (the program then listens on loopback only) every caller has every scope,
//! and [`loopback`] keeps web pages from using a browser on this machine as their hand.

mod caller;
pub mod loopback;
mod require;
mod scope;
mod session_cookie;
mod token;

pub use caller::Caller;
pub(crate) use caller::Doorkeeper;
pub use require::{Require, Required, require};
pub use scope::{Scope, Scopes, UnknownScope};
pub use session_cookie::Visit;
pub use token::{Authentication, NewToken, Token, TokenError, Tokens};
