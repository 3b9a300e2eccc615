//! Digest of a request: SHA-256 over its RFC 8785 canonical form.
//!
//! Two requests have the same digest exactly when they mean the same: the order of keys, white space and escaping don't
//! matter. RFC 8785 prints every number as a double, so numbers that a double can't hold are rejected instead of being
//! rounded (`9007199254740993` would become `…992`); put exact decimals in strings.
//!
//! ```
//! use postrider::digest::Digest;
//!
//! let one = Digest::of_json(r#"{ "b": 1, "a": 2 }"#)?;
//! assert_eq!(one, Digest::of_json(r#"{"a":2,"b":1.0}"#)?);
//! # Ok::<(), postrider::digest::DigestError>(())
//! ```

mod exact;
mod form;

use std::{fmt, str::FromStr};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// SHA-256 of a canonical request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Why a request has no digest.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// A number would lose digits.
    #[error(
        "the number {number} at {path} has more digits than JSON numbers keep; write it as a string"
    )]
    Inexact {
        /// Its position, as a JSON pointer (`/items/0/price`; empty for the whole document).
        path: String,
        /// Its text, shortened if it is long.
        number: String,
    },
    /// A key occurs twice, so its value is ambiguous.
    #[error("the key at {path} occurs twice; remove one of the two")]
    DuplicateKey {
        /// The key, as a JSON pointer.
        path: String,
    },
    /// It isn't JSON, or can't be serialized as JSON.
    #[error("it has no canonical JSON form: {0}")]
    Json(#[from] serde_json::Error),
}

/// The RFC 8785 canonical form of a value.
pub fn canonical(value: &impl Serialize) -> Result<Vec<u8>, DigestError> {
    // By way of the text, in which integers of any size still have all their digits.
    canonical_form(&serde_json::to_string(value)?)
}

/// The RFC 8785 canonical form of a JSON text.
pub fn canonical_json(text: &str) -> Result<Vec<u8>, DigestError> {
    // Syntax first, then what the syntax hides; only then are numbers turned into doubles.
    serde_json::from_str::<serde::de::IgnoredAny>(text)?;
    canonical_form(text)
}

/// The canonical form of a text that is certainly JSON.
fn canonical_form(text: &str) -> Result<Vec<u8>, DigestError> {
    exact::check(text)?;
    let value: serde_json::Value = serde_json::from_str(text)?;
    let mut canonical = Vec::with_capacity(text.len());
    form::write(&value, &mut canonical)?;
    Ok(canonical)
}

impl Digest {
    /// The digest of a value.
    pub fn of(value: &impl Serialize) -> Result<Self, DigestError> {
        canonical(value).map(|bytes| Self::of_bytes(&bytes))
    }

    /// The digest of a JSON text.
    pub fn of_json(text: &str) -> Result<Self, DigestError> {
        canonical_json(text).map(|bytes| Self::of_bytes(&bytes))
    }

    /// The digest of bytes that are canonical already.
    #[must_use]
    pub fn of_bytes(canonical: &[u8]) -> Self {
        Self(Sha256::digest(canonical).into())
    }

    /// The 32 bytes, as they are stored.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A stored digest; None if it isn't 32 bytes long.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Digest {
    /// 64 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Text that isn't a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 hexadecimal digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NotADigest)?;
        Ok(Self(bytes))
    }
}
