//! Why a JSON text is invalid, and the problem that says so.

use super::pointer::Pointer;
use crate::error_code::{ErrorCode, codes};
use crate::problem::Problem;

/// Maximum length of a reason in characters: serde quotes the value that it found.
const MAX_REASON_LENGTH: usize = 300;

/// Where an invalid character is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// In a string at the pointer.
    Value,
    /// In a key of the object at the pointer.
    Key,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Location::Value => "the string at",
            Location::Key => "a key of the object at",
        })
    }
}

/// Why a JSON text is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Longer than the limit.
    #[error("the JSON text is longer than the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Not UTF-8.
    #[error("the JSON text is not UTF-8: the byte at offset {offset} is invalid")]
    NotUtf8 {
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// Not JSON.
    #[error("{expected} at line {line}, column {column}")]
    Syntax {
        /// What is wrong.
        expected: &'static str,
        /// Counted from one.
        line: usize,
        /// Counted from one, in characters.
        column: usize,
    },
    /// Nested deeper than the limit.
    #[error("the nesting at {pointer} is deeper than the limit of {limit}")]
    TooDeep {
        /// Where the limit was exceeded.
        pointer: Pointer,
        /// The limit.
        limit: usize,
    },
    /// The same key twice in one object.
    #[error("the key at {pointer} occurs twice in its object")]
    DuplicateKey {
        /// The key.
        pointer: Pointer,
    },
    /// `\u0000`, which PostgreSQL can't store.
    #[error("{location} {pointer} contains \\u0000, which can't be stored")]
    Nul {
        /// In a string or in a key.
        location: Location,
        /// Its position.
        pointer: Pointer,
    },
    /// Half of a surrogate pair, which is not a character.
    #[error("{location} {pointer} contains half of a surrogate pair, which is not a character")]
    LoneSurrogate {
        /// In a string or in a key.
        location: Location,
        /// Its position.
        pointer: Pointer,
    },
    /// A number that would lose precision.
    #[error("the number at {pointer} can't be stored exactly: send it as a string")]
    InexactNumber {
        /// The number.
        pointer: Pointer,
    },
    /// Unknown fields.
    #[error("{} unknown: {}", if fields.len() == 1 { "a field is" } else { "some fields are" }, join(fields))]
    UnknownFields {
        /// The fields.
        fields: Vec<Pointer>,
    },
    /// Well-formed, but doesn't match the schema.
    #[error("{reason} (at {pointer})")]
    Shape {
        /// The value.
        pointer: Pointer,
        /// The deserializer's message.
        reason: String,
    },
}

fn join(fields: &[Pointer]) -> String {
    let texts: Vec<&str> = fields.iter().map(Pointer::as_str).collect();
    texts.join(", ")
}

/// serde's message without its position: the pointer says which field it is.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    shorten(text.strip_suffix(&position).unwrap_or(&text))
}

/// Truncates a message that quotes the client's input.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_REASON_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl JsonError {
    fn code(&self) -> &'static ErrorCode {
        match self {
            JsonError::TooLarge { .. } => &codes::BODY_TOO_LARGE,
            JsonError::NotUtf8 { .. } | JsonError::Syntax { .. } => &codes::INVALID_JSON,
            JsonError::TooDeep { .. } => &codes::JSON_TOO_DEEP,
            JsonError::DuplicateKey { .. } => &codes::DUPLICATE_KEY,
            JsonError::Nul { .. } => &codes::NUL_CHARACTER,
            JsonError::LoneSurrogate { .. } => &codes::LONE_SURROGATE,
            JsonError::InexactNumber { .. } => &codes::INEXACT_NUMBER,
            JsonError::UnknownFields { .. } | JsonError::Shape { .. } => &codes::INVALID_BODY,
        }
    }
}

impl From<JsonError> for Problem {
    fn from(error: JsonError) -> Self {
        let problem = Problem::new(error.code(), format!("The body is invalid: {error}."));
        match &error {
            JsonError::TooLarge { limit } => problem.with("limit", *limit),
            JsonError::Syntax { line, column, .. } => {
                problem.with("line", *line).with("column", *column)
            }
            JsonError::NotUtf8 { .. } => problem,
            JsonError::TooDeep { pointer, limit } => problem
                .with("limit", *limit)
                .field(pointer.as_str(), "nested too deeply"),
            JsonError::DuplicateKey { pointer } => problem.field(pointer.as_str(), "duplicate key"),
            JsonError::Nul { pointer, .. } => problem.field(pointer.as_str(), "contains \\u0000"),
            JsonError::LoneSurrogate { pointer, .. } => {
                problem.field(pointer.as_str(), "holds a lone surrogate")
            }
            JsonError::InexactNumber { pointer } => {
                problem.field(pointer.as_str(), "can't be stored exactly")
            }
            JsonError::UnknownFields { fields } => fields.iter().fold(problem, |problem, f| {
                problem.field(f.as_str(), "unknown field")
            }),
            JsonError::Shape { pointer, reason } => problem.field(pointer.as_str(), reason),
        }
    }
}
