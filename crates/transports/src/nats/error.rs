//! Which NATS errors are permanent. All others are transient, and the same call may succeed later: servers restart, JetStream
//! starts after its server, streams elect leaders.

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, PublishError,
    PublishErrorKind,
};
use async_nats::jetstream::stream::{ConsumerError, ConsumerErrorKind};
use async_nats::{ConnectError, ConnectErrorKind};
use postrider::transport::{Published, TransportError};

use super::NAME;
use crate::broker::{Cause, rejected_failure, transport_error, unavailable_failure};

pub(super) fn classify(source: impl Into<Cause>) -> TransportError {
    let source = source.into();
    let permanent = match source.downcast_ref::<ConnectError>() {
        Some(error) => matches!(
            error.kind(),
            ConnectErrorKind::Authentication
                | ConnectErrorKind::AuthorizationViolation
                | ConnectErrorKind::ServerParse
        ),
        None => error_code(&source).is_some_and(is_permanent),
    };
    transport_error(NAME, source, permanent)
}

/// The code that the server answered a declaring call with.
fn error_code(source: &Cause) -> Option<ErrorCode> {
    if let Some(error) = source.downcast_ref::<GetStreamError>()
        && let GetStreamErrorKind::JetStream(error) = error.kind()
    {
        return Some(error.error_code());
    }
    if let Some(error) = source.downcast_ref::<CreateStreamError>()
        && let CreateStreamErrorKind::JetStream(error) = error.kind()
    {
        return Some(error.error_code());
    }
    if let Some(error) = source.downcast_ref::<ConsumerError>()
        && let ConsumerErrorKind::JetStream(error) = error.kind()
    {
        return Some(error.error_code());
    }
    None
}

/// Missing rights, limits and invalid settings: somebody has to change something. "Name already in use" is not among them: a
/// concurrent declaration causes it for a moment.
fn is_permanent(code: ErrorCode) -> bool {
    [
        ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
        ErrorCode::NO_ACCOUNT,
        ErrorCode::BAD_REQUEST,
        ErrorCode::INVALID_JSON,
        ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
        ErrorCode::MAXIMUM_STREAMS_LIMIT,
        ErrorCode::MAXIMUM_CONSUMERS_LIMIT,
        ErrorCode::STREAM_INVALID_CONFIG,
        ErrorCode::STREAM_LIMITS,
        ErrorCode::STREAM_SUBJECT_OVERLAP,
        ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED,
        ErrorCode::STREAM_MAX_BYTES_REQUIRED,
        ErrorCode::CONSUMER_MAX_PENDING_ACK_EXCESS,
        ErrorCode::CONSUMER_REPLICAS_EXCEEDS_STREAM,
    ]
    .contains(&code)
}

pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

pub(super) fn publish_answer(result: Result<(), PublishError>) -> Published {
    let Err(error) = result else {
        return Published::Confirmed;
    };
    match error.kind() {
        PublishErrorKind::StreamNotFound => Published::Unroutable,
        PublishErrorKind::MaxPayloadExceeded => {
            let text = format!("larger than the server's max_payload: {error}");
            Published::Failed(rejected_failure(NAME, &text))
        }
        _ => Published::Unavailable(unavailable_failure(NAME, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create_stream_error(code: ErrorCode) -> TransportError {
        let text = format!(r#"{{"code":503,"err_code":{},"description":"x"}}"#, code.0);
        let error: async_nats::jetstream::Error =
            serde_json::from_str(&text).unwrap_or_else(|error| {
                unreachable!("{error}");
            });
        classify(CreateStreamError::new(CreateStreamErrorKind::JetStream(
            error,
        )))
    }

    #[test]
    fn a_server_that_starts_or_elects_a_leader_is_a_transient_error() {
        for code in [
            ErrorCode::CLUSTER_NOT_AVAILABLE,
            ErrorCode::CLUSTER_NOT_LEADER,
            ErrorCode::CLUSTER_NOT_ACTIVE,
            ErrorCode::CLUSTER_NOT_ASSIGNED,
            ErrorCode::CLUSTER_INCOMPLETE,
            ErrorCode::CLUSTER_NO_PEERS,
            ErrorCode::JETSTREAM_NOT_ENABLED,
            ErrorCode::INSUFFICIENT_RESOURCES,
            ErrorCode::RAFT_GENERAL,
            ErrorCode::STREAM_OFFLINE,
            ErrorCode::CONSUMER_OFFLINE,
            ErrorCode::STREAM_NOT_FOUND,
            ErrorCode::STREAM_NAME_EXIST,
        ] {
            assert!(create_stream_error(code).is_transient(), "{code:?}");
        }
        for kind in [
            CreateStreamErrorKind::JetStreamUnavailable,
            CreateStreamErrorKind::TimedOut,
            CreateStreamErrorKind::Response,
        ] {
            assert!(classify(CreateStreamError::new(kind)).is_transient());
        }
        assert!(classify(ConnectError::new(ConnectErrorKind::Io)).is_transient());
    }

    #[test]
    fn authorization_and_configuration_errors_are_permanent() {
        for code in [
            ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
            ErrorCode::STREAM_INVALID_CONFIG,
            ErrorCode::STREAM_SUBJECT_OVERLAP,
        ] {
            assert!(!create_stream_error(code).is_transient(), "{code:?}");
        }
        for kind in [
            ConnectErrorKind::AuthorizationViolation,
            ConnectErrorKind::ServerParse,
        ] {
            assert!(!classify(ConnectError::new(kind)).is_transient());
        }
    }
}
