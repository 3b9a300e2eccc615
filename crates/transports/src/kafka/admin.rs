//! Declaring: the topic, and the place from which a new group reads.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::{ANSWER, MOST_BYTES};
use crate::outside::Cause;

const CALL: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// A new topic is not known to everybody at once.
const TRIES: u32 = 100;

/// Makes the topic if it is not there, and has a group that is new to it begin at its end.
pub(super) async fn declare(
    config: &ClientConfig,
    replicas: Option<i32>,
    topic: &str,
    group: &str,
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
    let (mut config, topic) = (config.clone(), topic.to_owned());
    config
        .set("group.id", group)
        .set("enable.auto.commit", "false");
    tokio::task::spawn_blocking(move || begin(&config, &topic)).await?
}

/// Where the group has no place in a partition yet, that place is its present end.
fn begin(config: &ClientConfig, topic: &str) -> Result<(), Cause> {
    let consumer: BaseConsumer = config.create()?;
    let partitions = partitions(&consumer, topic)?;
    let committed = consumer.committed_offsets(partitions, ANSWER)?;
    let mut ends = TopicPartitionList::new();
    for element in committed.elements() {
        if element.offset() == Offset::Invalid {
            let end = end(&consumer, topic, element.partition())?;
            ends.add_partition_offset(topic, element.partition(), Offset::Offset(end))?;
        }
    }
    if ends.count() == 0 {
        return Ok(());
    }
    match consumer.commit(&ends, CommitMode::Sync) {
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

fn end(consumer: &BaseConsumer, topic: &str, partition: i32) -> Result<i64, Cause> {
    let mut tries = TRIES;
    loop {
        match consumer.fetch_watermarks(topic, partition, CALL) {
            Ok((_, end)) => return Ok(end),
            Err(error) if tries == 0 => return Err(error.into()),
            // Its leader is just being chosen.
            Err(_) => tries -= 1,
        }
        std::thread::sleep(PAUSE);
    }
}
