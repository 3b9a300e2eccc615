//! Declaring: the topic, and the place from which a new group reads.
//!
//! The first group of a topic reads it from its beginning: between the making of a topic and the setting of the group's place
//! somebody may have published already, and was told that it is stored. A later group begins at the end.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::{ANSWER, MOST_BYTES};
use crate::broker::Cause;

const CALL: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// A new topic is not known to everybody at once.
const TRIES: u32 = 100;

/// Makes the topic if it is not there, and gives a group that is new to it a place.
pub(super) async fn declare(
    config: &ClientConfig,
    replicas: Option<i32>,
    topic: &str,
    group: &str,
    others: &[String],
) -> Result<(), Cause> {
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let options = AdminOptions::new()
        .request_timeout(Some(CALL))
        .operation_timeout(Some(CALL));
    // Without numbers of ours the brokers' own defaults hold.
    let new = NewTopic::new(topic, -1, TopicReplication::Fixed(replicas.unwrap_or(-1)))
        .set("max.message.bytes", MOST_BYTES);
    for result in admin.create_topics([&new], &options).await? {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => {
                return Err(format!("the topic {topic} can't be made: {code}").into());
            }
        }
    }
    let (config, topic) = (config.clone(), topic.to_owned());
    let (group, others) = (group.to_owned(), others.to_vec());
    tokio::task::spawn_blocking(move || begin(&config, &topic, &group, &others)).await?
}

/// Where the group has no place in a partition yet, it gets one.
fn begin(config: &ClientConfig, topic: &str, group: &str, others: &[String]) -> Result<(), Cause> {
    let consumer = outsider(config, group)?;
    let partitions = partitions(&consumer, topic)?;
    let committed = consumer.committed_offsets(partitions.clone(), ANSWER)?;
    let new: Vec<i32> = places(&committed, false);
    if new.is_empty() {
        return Ok(());
    }
    let mut is_first = true;
    for other in others {
        let theirs = outsider(config, other)?.committed_offsets(partitions.clone(), ANSWER)?;
        is_first &= places(&theirs, true).is_empty();
    }
    let mut list = TopicPartitionList::new();
    for partition in new {
        let (low, high) = watermarks(&consumer, topic, partition)?;
        let place = Offset::Offset(if is_first { low } else { high });
        list.add_partition_offset(topic, partition, place)?;
    }
    match consumer.commit(&list, CommitMode::Sync) {
        // The group is at work on other topics and lets no outsider commit: it begins with what the topic holds.
        Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::UnknownMemberId)) => {
            tracing::info!(
                topic,
                "a group that runs already reads this topic from its beginning"
            );
            Ok(())
        }
        done => Ok(done?),
    }
}

/// Looks at a group's places without joining it.
fn outsider(config: &ClientConfig, group: &str) -> Result<BaseConsumer, KafkaError> {
    let mut config = config.clone();
    config
        .set("group.id", group)
        .set("enable.auto.commit", "false");
    config.create()
}

/// The partitions in which a group has a place, or has none.
fn places(committed: &TopicPartitionList, has: bool) -> Vec<i32> {
    let elements = committed.elements();
    let fits = elements
        .iter()
        .filter(|element| (element.offset() != Offset::Invalid) == has);
    fits.map(|element| element.partition()).collect()
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<TopicPartitionList, Cause> {
    for _ in 0..TRIES {
        let metadata = consumer.fetch_metadata(Some(topic), CALL)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        if let Some(found) =
            found.filter(|found| found.error().is_none() && !found.partitions().is_empty())
        {
            let mut list = TopicPartitionList::new();
            for partition in found.partitions() {
                list.add_partition(topic, partition.id());
            }
            return Ok(list);
        }
        std::thread::sleep(PAUSE);
    }
    Err(format!("the topic {topic} does not appear").into())
}

fn watermarks(consumer: &BaseConsumer, topic: &str, partition: i32) -> Result<(i64, i64), Cause> {
    let mut tries = TRIES;
    loop {
        match consumer.fetch_watermarks(topic, partition, CALL) {
            Ok(marks) => return Ok(marks),
            Err(error) if tries == 0 => return Err(error.into()),
            // Its leader is just being chosen.
            Err(_) => tries -= 1,
        }
        std::thread::sleep(PAUSE);
    }
}
