//! Error codes of an attachment, and whether each can be retried.

use postrider::failure::Category;

/// Why an artifact could not be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The Case API didn't respond in time.
    ApiTimeout,
    /// The connection to it failed or broke.
    NetworkTimeout,
    /// The Case API is unavailable.
    Unavailable,
    /// The Case API failed on this file.
    ServerError,
    /// A failure on our side, or an unknown one.
    SystemError,
    /// The object differs from what was ingested.
    CorruptedFile,
    /// The Case API rejects the file.
    InvalidFormat,
    /// The object is not in the store.
    ObjectMissing,
    /// The Case API rejects our credentials.
    Unauthorized,
    /// The Case API forbids the call.
    Forbidden,
    /// There is no such case.
    CaseNotFound,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 11] = [
        Self::ApiTimeout,
        Self::NetworkTimeout,
        Self::Unavailable,
        Self::ServerError,
        Self::SystemError,
        Self::CorruptedFile,
        Self::InvalidFormat,
        Self::ObjectMissing,
        Self::Unauthorized,
        Self::Forbidden,
        Self::CaseNotFound,
    ];

    /// The name as stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiTimeout => "ATTACHMENT_API_TIMEOUT",
            Self::NetworkTimeout => "NETWORK_TIMEOUT",
            Self::Unavailable => "503",
            Self::ServerError => "500",
            Self::SystemError => "SYSTEM_ERROR",
            Self::CorruptedFile => "CORRUPTED_FILE",
            Self::InvalidFormat => "INVALID_FORMAT",
            Self::ObjectMissing => "S3_NOT_FOUND",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::CaseNotFound => "CASE_NOT_FOUND",
        }
    }

    /// The category; a test compares it with the database's function.
    #[must_use]
    pub const fn category(self) -> Category {
        match self {
            Self::ApiTimeout | Self::NetworkTimeout | Self::Unavailable => Category::Network,
            Self::ServerError | Self::SystemError => Category::System,
            Self::CorruptedFile | Self::InvalidFormat | Self::ObjectMissing => Category::Data,
            Self::Unauthorized | Self::Forbidden | Self::CaseNotFound => Category::Auth,
        }
    }

    /// Whether another attempt may succeed.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        self.category().is_transient()
    }

    /// The code for a response of the Case API other than success and 409.
    #[must_use]
    pub const fn from_status(status: u16) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 | 407 => Self::Forbidden,
            404 | 410 => Self::CaseNotFound,
            408 | 504 => Self::ApiTimeout,
            425 | 429 | 502 | 503 => Self::Unavailable,
            400..=499 => Self::InvalidFormat,
            500..=599 => Self::ServerError,
            _ => Self::SystemError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_response_of_the_case_api_has_a_code() {
        for (status, code) in [
            (401, "401"),
            (403, "403"),
            (404, "CASE_NOT_FOUND"),
            (408, "ATTACHMENT_API_TIMEOUT"),
            (413, "INVALID_FORMAT"),
            (415, "INVALID_FORMAT"),
            (422, "INVALID_FORMAT"),
            (429, "503"),
            (500, "500"),
            (503, "503"),
            (504, "ATTACHMENT_API_TIMEOUT"),
            (302, "SYSTEM_ERROR"),
        ] {
            assert_eq!(Code::from_status(status).as_str(), code, "{status}");
        }
    }
}
