//! Which RabbitMQ errors are permanent. All others are transient, and the same call may succeed later: nodes restart, a queue's
//! home node is down, a connection or channel was closed.

use lapin::ErrorKind;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use postrider::transport::TransportError;

use super::NAME;
use crate::broker::{Cause, transport_error};

pub(super) fn classify(source: impl Into<Cause>) -> TransportError {
    let source = source.into();
    let permanent = source.downcast_ref().is_some_and(is_permanent);
    transport_error(NAME, source, permanent)
}

/// Missing permissions, an unknown virtual host, or a queue that exists with other arguments: somebody has to change something.
fn is_permanent(error: &lapin::Error) -> bool {
    match error.kind() {
        ErrorKind::ProtocolError(error) => matches!(
            error.kind(),
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED | AMQPSoftError::PRECONDITIONFAILED)
                | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)
        ),
        ErrorKind::InvalidProtocolVersion(_) | ErrorKind::AuthProviderError(_) => true,
        _ => false,
    }
}

/// The exchange or queue doesn't exist.
pub(super) fn is_missing(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error)
        if *error.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
}

#[cfg(test)]
mod tests {
    use lapin::protocol::AMQPError;

    use super::*;

    fn error(kind: AMQPErrorKind) -> TransportError {
        let error = AMQPError::new(kind, "text".into());
        classify(lapin::Error::from(ErrorKind::ProtocolError(error)))
    }

    #[test]
    fn a_node_that_starts_or_stops_is_a_transient_error() {
        for soft in [
            // "home node of durable queue is down or inaccessible"
            AMQPSoftError::NOTFOUND,
            AMQPSoftError::RESOURCELOCKED,
            AMQPSoftError::NOCONSUMERS,
        ] {
            assert!(
                error(AMQPErrorKind::Soft(soft.clone())).is_transient(),
                "{soft:?}"
            );
        }
        for hard in [
            // "broker forced connection closure with reason 'shutdown'"
            AMQPHardError::CONNECTIONFORCED,
            // "vhost is down"
            AMQPHardError::INTERNALERROR,
            AMQPHardError::RESOURCEERROR,
            AMQPHardError::CHANNELERROR,
        ] {
            assert!(
                error(AMQPErrorKind::Hard(hard.clone())).is_transient(),
                "{hard:?}"
            );
        }
        let closed = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(classify(lapin::Error::from(closed)).is_transient());
        assert!(classify(lapin::Error::from(ErrorKind::MissingHeartbeatError)).is_transient());
    }

    #[test]
    fn authorization_and_configuration_errors_are_permanent() {
        for soft in [
            AMQPSoftError::ACCESSREFUSED,
            AMQPSoftError::PRECONDITIONFAILED,
        ] {
            assert!(!error(AMQPErrorKind::Soft(soft)).is_transient());
        }
        assert!(!error(AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)).is_transient());
    }
}
