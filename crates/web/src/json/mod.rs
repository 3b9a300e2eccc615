//! Strict JSON: what is accepted means one thing only, and PostgreSQL can store it.
//!
//! The first pass ([`check`]) reads the bytes once without building anything and refuses invalid
//! UTF-8 and syntax (with line and column), duplicate keys, deep nesting, `\u0000`, lone surrogates
//! and numbers that a double would change (each with the JSON pointer of the place). The second
//! pass hands the bytes to serde and reports unknown fields, wrong types (an array for an object
//! among them) and missing fields with their pointer. Memory is bounded by the body's size and the depth limit.

mod error;
mod extract;
mod number;
mod objects;
mod pointer;
mod scan;

pub(crate) use error::shorten;
pub use error::{JsonError, Within};
pub use extract::Json;

use objects::Objects;
use serde::de::DeserializeOwned;

pub use pointer::Pointer;

/// No text nested deeper than this can be read at all: serde_json's own guard is one above.
pub const MAX_DEPTH: usize = 127;

/// How many unknown fields one answer lists.
const LISTED: usize = 20;

/// What a JSON text may be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest text, in bytes.
    pub max_bytes: usize,
    /// The deepest nesting of arrays and objects; capped at [`MAX_DEPTH`].
    pub max_depth: usize,
    /// Whether numbers that neither a 64-bit integer nor a double holds exactly are let through:
    /// only for types that keep a number's text.
    pub any_number: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 1024 * 1024,
            max_depth: 64,
            any_number: false,
        }
    }
}

/// Validates without building a value.
///
/// # Errors
/// Says what is wrong and where.
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

/// Validates, then deserialises. Fields that the type does not know are refused wherever serde
/// tells them apart; inside untagged or internally tagged enums and beside `flatten` that needs
/// `#[serde(deny_unknown_fields)]` on the type itself.
///
/// # Errors
/// Says what is wrong and where.
pub fn parse<T: DeserializeOwned>(bytes: &[u8], limits: &Limits) -> Result<T, JsonError> {
    check(bytes, limits)?;
    // Where it goes wrong is looked for only when it does: keeping track costs as much as reading.
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut known = true;
    match serde_ignored::deserialize(Objects(&mut json), |_| known = false) {
        Ok(value) if known => Ok(value),
        _ => explain(bytes),
    }
}

/// Reads again, and says which fields are wrong.
fn explain<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let value = serde_ignored::deserialize(Objects(tracked), |path| {
        if unknown.len() < LISTED {
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
