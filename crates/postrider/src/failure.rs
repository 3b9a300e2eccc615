//! Why an attempt failed: a code for programs, a category that decides what happens next, a message for people.
//!
//! Whatever a handler or an outside party reports, a [`Failure`] can be stored and shown: the code is short and plain,
//! and the message is free of secrets, bounded, and without characters that PostgreSQL rejects.

mod redact;
mod signature;

use std::{fmt, str::FromStr};

pub use redact::redact;
pub use signature::signature;

/// Maximum length of a message in bytes; longer ones are truncated with a mark.
pub const MAX_MESSAGE: usize = 2_000;

/// Maximum length of a code in bytes.
pub const MAX_CODE: usize = 64;

/// The kind of failure, which decides whether another attempt makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Category {
    /// The network is disturbed: transient.
    Network,
    /// The other system or ours has a problem, or the cause is unknown: transient.
    System,
    /// The item itself is wrong: permanent.
    Data,
    /// The caller isn't allowed to do this: permanent.
    Auth,
}

impl Category {
    /// Whether another attempt may succeed without any change.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        match self {
            Self::Network | Self::System => true,
            Self::Data | Self::Auth => false,
        }
    }

    /// The category of a well-known code; an unknown one is [`Category::System`].
    ///
    /// HTTP status codes are classified by meaning: 408, 425, 429, 502, 503 and 504 are about the network or the
    /// moment, 401, 403 and 407 about the caller, the other 4xx about the item.
    #[must_use]
    pub fn from_code(code: &str) -> Self {
        match code {
            "ATTACHMENT_API_TIMEOUT" | "NETWORK_TIMEOUT" | "NETWORK_ERROR" | "TIMEOUT" => {
                Self::Network
            }
            "CORRUPTED_FILE" | "INVALID_FORMAT" | "S3_NOT_FOUND" | "UNREADABLE_PAYLOAD" => {
                Self::Data
            }
            "UNAUTHORIZED" | "FORBIDDEN" | "CASE_NOT_FOUND" => Self::Auth,
            _ => code.parse().map_or(Self::System, Self::from_status),
        }
    }

    /// The category of an HTTP status that isn't a success.
    #[must_use]
    pub const fn from_status(status: u16) -> Self {
        match status {
            408 | 425 | 429 | 502 | 503 | 504 => Self::Network,
            401 | 403 | 407 => Self::Auth,
            400..=499 => Self::Data,
            _ => Self::System,
        }
    }

    /// The name as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Network => "NETWORK",
            Self::System => "SYSTEM",
            Self::Data => "DATA",
            Self::Auth => "AUTH",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A stored category that no version of the program has written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a failure category; use NETWORK, SYSTEM, DATA or AUTH")]
pub struct UnknownCategory(String);

impl FromStr for Category {
    type Err = UnknownCategory;

    fn from_str(name: &str) -> Result<Self, UnknownCategory> {
        [Self::Network, Self::System, Self::Data, Self::Auth]
            .into_iter()
            .find(|category| category.as_str() == name)
            .ok_or_else(|| UnknownCategory(storable(name, MAX_CODE)))
    }
}

/// A failure that can be stored, grouped and shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: String,
    category: Category,
    message: String,
}

impl Failure {
    /// Creates a failure whose category follows from its code (see [`Category::from_code`]).
    #[must_use]
    pub fn new(code: &str, message: impl fmt::Display) -> Self {
        Self::with_category(code, Category::from_code(code), message)
    }

    /// Creates a failure with an explicit category.
    #[must_use]
    pub fn with_category(code: &str, category: Category, message: impl fmt::Display) -> Self {
        Self {
            code: clean_code(code),
            category,
            message: clean_message(&message.to_string()),
        }
    }

    /// Creates a failure from an error and its chain of sources.
    #[must_use]
    pub fn from_error(code: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Many errors repeat their source in their own text.
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self::new(code, text)
    }

    /// The stable code, such as `NETWORK_TIMEOUT` or `503`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The category.
    #[must_use]
    pub const fn category(&self) -> Category {
        self.category
    }

    /// The message, free of secrets.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether another attempt may succeed.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.category.is_transient()
    }

    /// The group of this failure: its code and its message without the particulars.
    #[must_use]
    pub fn signature(&self) -> String {
        format!("{}: {}", self.code, signature(&self.message))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code, self.category, self.message)
    }
}

impl std::error::Error for Failure {}

/// A message that may be stored: secrets redacted, then [`storable`].
#[must_use]
pub fn clean_message(text: &str) -> String {
    // Far more than is kept, so that truncating first can't turn a secret into something that no pattern matches.
    storable(&redact(cut(text, MAX_MESSAGE * 8)), MAX_MESSAGE)
}

/// Text that PostgreSQL accepts: no NUL, no control characters but line feed and tab, at most `max` bytes.
#[must_use]
pub fn storable(text: &str, max: usize) -> String {
    const MARK: &str = "…";
    let clean = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => '\u{FFFD}',
        c => c,
    };
    let text: String = cut(text, max.saturating_mul(2))
        .chars()
        .map(clean)
        .collect();
    if text.len() <= max {
        return text;
    }
    let kept = cut(&text, max.saturating_sub(MARK.len()));
    if max < MARK.len() {
        kept.to_owned()
    } else {
        format!("{kept}{MARK}")
    }
}

/// At most `max` bytes, without splitting a character.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn clean_code(code: &str) -> String {
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') {
            c
        } else {
            '_'
        }
    };
    let code: String = code.trim().chars().take(MAX_CODE).map(clean).collect();
    if code.is_empty() {
        "UNKNOWN".to_owned()
    } else {
        code
    }
}
