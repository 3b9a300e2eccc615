//! The digest of a request: SHA-256 over its RFC 8785 canonical form.
//!
//! Two requests have the same digest exactly when they mean the same: the order of keys, white space and the way
//! characters are escaped do not matter. RFC 8785 prints every number as a double, hence numbers that a double can't
//! hold are refused instead of being rounded (`9007199254740993` would become `…992`); exact decimals belong in strings.

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
        /// Where it is, as a JSON pointer (`/items/0/price`; empty for the whole document).
        path: String,
        /// What it says, shortened if it is long.
        number: String,
    },
    /// The same key twice: which of them counts is anybody's guess.
    #[error("the key at {path} is given twice; remove one of the two")]
    DuplicateKey {
        /// The key, as a JSON pointer.
        path: String,
    },
    /// It is not JSON, or it can't be written as JSON.
    #[error("no canonical JSON can be made of it: {0}")]
    Json(#[from] serde_json::Error),
}

/// The RFC 8785 canonical form of a value.
pub fn canonical(value: &impl Serialize) -> Result<Vec<u8>, DigestError> {
    // By way of the text: there, integers of any size still have all their digits.
    canonical_form(&serde_json::to_string(value)?)
}

/// The RFC 8785 canonical form of a JSON text.
pub fn canonical_json(text: &str) -> Result<Vec<u8>, DigestError> {
    // Syntax first, then what the syntax hides; only then numbers are turned into doubles.
    serde_json::from_str::<serde::de::IgnoredAny>(text)?;
    canonical_form(text)
}

/// Of a text that certainly is JSON.
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

    /// A stored digest; none if it has not 32 bytes.
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

/// Text that is not a digest.
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
