//! Declaring: creates the topic and sets the offsets at which a new group starts.
//!
//! The first group of a topic reads it from the beginning: a message may have been published and confirmed between the creation
//! of the topic and the commit of the group's offsets. A later group starts at the end.
//!
//! Each function makes one attempt. A topic without metadata or a partition without a leader is a transient error, which
//! the caller retries.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::MAX_MESSAGE_BYTES;
use crate::broker::Cause;

const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates the topic if it is missing, and commits start offsets for a group that is new to it.
pub(super) async fn declare(
    config: &ClientConfig,
    replicas: Option<i32>,
    topic: &str,
    group: &str,
    others: &[String],
) -> Result<(), Cause> {
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let options = AdminOptions::new()
        .request_timeout(Some(CALL_TIMEOUT))
        .operation_timeout(Some(CALL_TIMEOUT));
    // -1: the brokers' own defaults.
    let new = NewTopic::new(topic, -1, TopicReplication::Fixed(replicas.unwrap_or(-1)))
        .set("max.message.bytes", MAX_MESSAGE_BYTES);
    for result in admin.create_topics([&new], &options).await? {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((_, code)) => return Err(KafkaError::AdminOp(code).into()),
        }
    }
    let (config, topic) = (config.clone(), topic.to_owned());
    let (group, others) = (group.to_owned(), others.to_vec());
    tokio::task::spawn_blocking(move || set_start(&config, &topic, &group, &others)).await??;
    Ok(())
}

/// Commits a start offset for each partition in which the group has none.
fn set_start(
    config: &ClientConfig,
    topic: &str,
    group: &str,
    others: &[String],
) -> Result<(), KafkaError> {
    let consumer = observer(config, group)?;
    let partitions = partitions(&consumer, topic)?;
    let offsets = committed(&consumer, &partitions)?;
    let without_offset = offsets
        .into_iter()
        .filter(|(_, offset)| *offset == Offset::Invalid);
    let new: Vec<i32> = without_offset.map(|(partition, _)| partition).collect();
    if new.is_empty() {
        return Ok(());
    }
    let mut is_first = true;
    for other in others {
        let theirs = committed(&observer(config, other)?, &partitions)?;
        is_first &= theirs.iter().all(|(_, offset)| *offset == Offset::Invalid);
    }
    let mut list = TopicPartitionList::new();
    for partition in new {
        let (low, high) = consumer.fetch_watermarks(topic, partition, CALL_TIMEOUT)?;
        let start = Offset::Offset(if is_first { low } else { high });
        list.add_partition_offset(topic, partition, start)?;
    }
    match consumer.commit(&list, CommitMode::Sync) {
        // The group already has members, and only members may commit: it starts with what the topic holds.
        Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::UnknownMemberId)) => {
            tracing::info!(
                topic,
                group,
                "the group is already running; it reads the new topic from the beginning"
            );
            Ok(())
        }
        done => done,
    }
}

/// A consumer that reads and commits a group's offsets without joining the group.
fn observer(config: &ClientConfig, group: &str) -> Result<BaseConsumer, KafkaError> {
    let mut config = config.clone();
    config
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        // The deadline of a synchronous commit.
        .set("socket.timeout.ms", CALL_TIMEOUT.as_millis().to_string());
    config.create()
}

/// The group's offset in each partition. An error of one partition is an error: it must not pass for "no offset".
fn committed(
    consumer: &BaseConsumer,
    partitions: &TopicPartitionList,
) -> Result<Vec<(i32, Offset)>, KafkaError> {
    let offsets = consumer.committed_offsets(partitions.clone(), CALL_TIMEOUT)?;
    let offset = |element: rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
        element.error()?;
        Ok((element.partition(), element.offset()))
    };
    offsets.elements().into_iter().map(offset).collect()
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<TopicPartitionList, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), CALL_TIMEOUT)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let mut list = TopicPartitionList::new();
    for partition in found.iter().flat_map(|found| found.partitions()) {
        list.add_partition(topic, partition.id());
    }
    let code = found.and_then(|found| found.error()).map(Into::into);
    match code {
        None if list.count() > 0 => Ok(list),
        // A new topic isn't known everywhere at once.
        code => Err(KafkaError::MetadataFetch(
            code.unwrap_or(RDKafkaErrorCode::UnknownTopicOrPartition),
        )),
    }
}
