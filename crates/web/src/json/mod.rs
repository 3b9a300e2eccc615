//! Strict JSON: accepted text is unambiguous, and PostgreSQL can store it.
//!
//! The first pass ([`check`]) scans the bytes once without building values. It rejects invalid UTF-8 and syntax (with line and
//! column), and duplicate keys, deep nesting, `\u0000`, lone surrogates and numbers that a double can't represent (with the JSON
//! pointer). The second pass deserializes with serde and reports unknown fields, wrong types (including an array for an object)
//! and missing fields with their pointer. Memory is bounded by the body's size and the depth limit.

mod error;
mod extract;
mod number;
mod objects;
mod pointer;
mod scan;

pub(crate) use error::shorten;
pub use error::{JsonError, Location};
pub use extract::Json;

use objects::StrictObjects;
use serde::de::DeserializeOwned;

pub use pointer::Pointer;

/// Upper bound of [`Limits::max_depth`]: serde_json's own limit is one above.
pub const MAX_DEPTH: usize = 127;

/// Maximum number of unknown fields in one problem.
const MAX_UNKNOWN_FIELDS: usize = 20;

/// Limits of a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size in bytes.
    pub max_bytes: usize,
    /// Maximum nesting of arrays and objects; at most [`MAX_DEPTH`].
    pub max_depth: usize,
    /// Accept numbers that neither a 64-bit integer nor a double represents exactly. Only for types that keep a number's text.
    pub allow_inexact_numbers: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 1024 * 1024,
            max_depth: 64,
            allow_inexact_numbers: false,
        }
    }
}

/// Validates without building a value.
///
/// # Errors
/// What is wrong, and where.
pub fn check(bytes: &[u8], limits: &Limits) -> Result<(), JsonError> {
    if bytes.len() > limits.max_bytes {
        return Err(JsonError::TooLarge {
            limit: limits.max_bytes,
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::NotUtf8 {
        offset: error.valid_up_to(),
    })?;
    scan::scan(text, limits)
}

/// Validates, then deserializes. Rejects unknown fields wherever serde reports them; inside untagged or internally tagged enums
/// and next to `flatten`, the type itself needs `#[serde(deny_unknown_fields)]`.
///
/// # Errors
/// What is wrong, and where.
pub fn parse<T: DeserializeOwned>(bytes: &[u8], limits: &Limits) -> Result<T, JsonError> {
    check(bytes, limits)?;
    // Tracking the position costs as much as deserializing, so it's done only after an error.
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut known = true;
    match serde_ignored::deserialize(StrictObjects(&mut json), |_| known = false) {
        Ok(value) if known => Ok(value),
        _ => find_errors(bytes),
    }
}

/// Deserializes again with tracking, to say which fields are wrong.
fn find_errors<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let value = serde_ignored::deserialize(StrictObjects(tracked), |path| {
        if unknown.len() < MAX_UNKNOWN_FIELDS {
            unknown.push(Pointer::from(&path));
        }
    });
    match value {
        Ok(value) if unknown.is_empty() => Ok(value),
        Ok(_) => Err(JsonError::UnknownFields { fields: unknown }),
        Err(error) => Err(JsonError::Shape {
            pointer: Pointer::from(&track.path()),
            reason: error::reason(&error),
        }),
    }
}
