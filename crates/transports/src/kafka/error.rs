//! Which Kafka errors are permanent. All others are transient, and the same call may succeed later: coordinators load and move,
//! leaders are elected, metadata propagates, brokers restart.

use postrider::transport::{Published, TransportError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::NAME;
use crate::broker::{Cause, rejected_failure, transport_error, unavailable_failure};

pub(super) fn classify(source: impl Into<Cause>) -> TransportError {
    let source = source.into();
    let permanent = match source.downcast_ref() {
        // Here the library's own accessor returns no code.
        Some(KafkaError::AdminOp(code)) => is_permanent(*code),
        Some(
            KafkaError::ClientConfig(..)
            | KafkaError::ClientCreation(_)
            | KafkaError::AdminOpCreation(_)
            | KafkaError::Nul(_),
        ) => true,
        Some(other) => other.rdkafka_error_code().is_some_and(is_permanent),
        None => false,
    };
    transport_error(NAME, source, permanent)
}

/// Missing permissions, wrong credentials, invalid names or settings: somebody has to change something.
const fn is_permanent(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::IllegalSASLState
            | Code::SecurityDisabled
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
            | Code::DelegationTokenAuthorizationFailed
            | Code::DelegationTokenExpired
            | Code::PrincipalDeserializationFailure
            | Code::UnacceptableCredential
            | Code::SSL
            | Code::InvalidArgument
            | Code::NotConfigured
            | Code::NotImplemented
            | Code::UnsupportedFeature
            | Code::UnsupportedVersion
            | Code::InvalidTopic
            | Code::InvalidGroupId
            | Code::InconsistentGroupProtocol
            | Code::InvalidPartitions
            | Code::InvalidReplicaAssignment
            | Code::InvalidConfig
            | Code::InvalidRequest
            | Code::PolicyViolation
    )
}

/// The answer to a message that was not confirmed.
pub(super) fn publish_error(error: &KafkaError) -> Published {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition,
        ) => Published::Unroutable,
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidMessageSize
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::PolicyViolation,
        ) => Published::Failed(rejected_failure(NAME, error)),
        _ => Published::Unavailable(unavailable_failure(NAME, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code that the protocol's error table marks as retriable, and the client library's own.
    #[test]
    fn every_retriable_code_is_transient() {
        use RDKafkaErrorCode as Code;
        let protocol = [
            Code::InvalidMessage,
            Code::UnknownTopicOrPartition,
            Code::LeaderNotAvailable,
            Code::NotLeaderForPartition,
            Code::RequestTimedOut,
            Code::BrokerNotAvailable,
            Code::ReplicaNotAvailable,
            Code::NetworkException,
            Code::CoordinatorLoadInProgress,
            Code::CoordinatorNotAvailable,
            Code::NotCoordinator,
            Code::NotEnoughReplicas,
            Code::NotEnoughReplicasAfterAppend,
            Code::RebalanceInProgress,
            Code::NotController,
            Code::ConcurrentTransactions,
            Code::KafkaStorageError,
            Code::FetchSessionIdNotFound,
            Code::InvalidFetchSessionEpoch,
            Code::ListenerNotFound,
            Code::FencedLeaderEpoch,
            Code::UnknownLeaderEpoch,
            Code::OffsetNotAvailable,
            Code::PreferredLeaderNotAvailable,
            Code::EligibleLeadersNotAvailable,
            Code::UnstableOffsetCommit,
            Code::ThrottlingQuotaExceeded,
            Code::UnknownTopicId,
            // All brokers are fenced while a small cluster starts.
            Code::InvalidReplicationFactor,
        ];
        let client = [
            Code::BrokerTransportFailure,
            Code::AllBrokersDown,
            Code::Resolve,
            Code::OperationTimedOut,
            Code::MessageTimedOut,
            Code::TimedOutQueue,
            Code::WaitingForCoordinator,
            Code::WaitCache,
            Code::InProgress,
            Code::PreviousInProgress,
            Code::Retry,
            Code::UnknownBroker,
            Code::BrokerDestroy,
            Code::DestroyBroker,
        ];
        for code in protocol.into_iter().chain(client) {
            for error in [
                KafkaError::AdminOp(code),
                KafkaError::MetadataFetch(code),
                KafkaError::OffsetFetch(code),
                KafkaError::ConsumerCommit(code),
                KafkaError::Global(code),
            ] {
                assert!(classify(error).is_transient(), "{code:?}");
            }
        }
    }

    #[test]
    fn authorization_and_configuration_errors_are_permanent() {
        use RDKafkaErrorCode as Code;
        for code in [
            Code::TopicAuthorizationFailed,
            Code::GroupAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::SaslAuthenticationFailed,
            Code::InvalidTopic,
            Code::InvalidConfig,
            Code::PolicyViolation,
        ] {
            for error in [KafkaError::AdminOp(code), KafkaError::OffsetFetch(code)] {
                assert!(!classify(error).is_transient(), "{code:?}");
            }
        }
        let creation = KafkaError::ClientCreation("no such setting".to_owned());
        assert!(!classify(creation).is_transient());
    }
}
