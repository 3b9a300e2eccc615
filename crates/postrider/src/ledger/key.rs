//! Idempotency keys.

use std::fmt;

/// Maximum length of a scope in bytes.
const MAX_SCOPE: usize = 100;
/// Maximum length of a key in bytes.
const MAX_KEY: usize = 255;

/// An idempotency key within its scope (the service, or the service and its tenant).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    scope: String,
    key: String,
}

/// Why a key is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It is empty.
    #[error("the idempotency {0} is empty")]
    Empty(&'static str),
    /// It is too long.
    #[error("the idempotency {what} has {found} bytes; at most {most} are allowed")]
    TooLong {
        /// The key or its scope.
        what: &'static str,
        /// Length in bytes.
        found: usize,
        /// Maximum in bytes.
        most: usize,
    },
    /// It contains control characters.
    #[error("the idempotency {0} contains control characters")]
    ControlCharacter(&'static str),
}

impl Key {
    /// Creates a valid key.
    pub fn new(scope: impl Into<String>, key: impl Into<String>) -> Result<Self, InvalidKey> {
        let (scope, key) = (scope.into(), key.into());
        check("scope", &scope, MAX_SCOPE)?;
        check("key", &key, MAX_KEY)?;
        Ok(Self { scope, key })
    }

    /// A key that comes from the ledger itself.
    pub(super) const fn stored(scope: String, key: String) -> Self {
        Self { scope, key }
    }

    /// The scope.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The key within the scope.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.key)
    }
}

fn check(what: &'static str, text: &str, most: usize) -> Result<(), InvalidKey> {
    if text.is_empty() {
        return Err(InvalidKey::Empty(what));
    }
    if text.len() > most {
        return Err(InvalidKey::TooLong {
            what,
            found: text.len(),
            most,
        });
    }
    if text.contains(char::is_control) {
        return Err(InvalidKey::ControlCharacter(what));
    }
    Ok(())
}
