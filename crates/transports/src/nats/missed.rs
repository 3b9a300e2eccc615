//! Messages that a restarted server no longer hands out.
//!
//! A server saves a consumer's position only now and then, and some versions restore it wrongly: a message that was stored and
//! confirmed is then below the acknowledged position and is never delivered. So after every new connection, once the group
//! has passed what the stream held at that moment, the messages that are still there are read from the stream itself. Another
//! group may still need such a message; then ours has it already and recognises the duplicate.

use std::sync::atomic::Ordering::Relaxed;

use async_nats::jetstream::consumer::{DeliverPolicy, PullConsumer};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Info, LastRawMessageErrorKind, Stream};

use super::{LazyClient, MAX_UNACKED, stream_name, subject};
use crate::broker::Cause;

#[derive(Debug, Default)]
pub(super) struct MissedMessages {
    /// The number of the connection whose start was seen.
    connection: u64,
    /// Everything up to here was checked.
    checked: u64,
    /// The stream's last message when the connection started.
    end: u64,
    /// Returned by `find`; deleted from the stream once they are stored here.
    found: Vec<u64>,
}

impl MissedMessages {
    /// The next missed messages, in order. Empty if there are none, or if it's too early to tell.
    pub async fn find(
        &mut self,
        client: &LazyClient,
        topic: &str,
        consumer: &PullConsumer,
    ) -> Result<Vec<StreamMessage>, Cause> {
        self.found.clear();
        let context = client.context().await?;
        let connection = context.client().statistics().connects.load(Relaxed);
        if self.connection == connection && self.checked >= self.end {
            return Ok(Vec::new());
        }
        let stream = context.get_stream(stream_name(topic)).await?;
        let info = stream.cached_info();
        if self.connection != connection {
            self.end = info.state.last_sequence;
            self.connection = connection;
        }
        let group = consumer.get_info().await?;
        // Earlier messages aren't the group's.
        let DeliverPolicy::ByStartSequence { start_sequence } = group.config.deliver_policy else {
            self.checked = self.end;
            return Ok(Vec::new());
        };
        self.checked = self.checked.max(start_sequence.saturating_sub(1));
        if group.ack_floor.stream_sequence < self.end {
            return Ok(Vec::new());
        }
        let found = match read(&stream, topic, self.checked + 1, self.end).await {
            Ok((found, checked)) => {
                self.checked = checked;
                found
            }
            Err(error) => {
                // Without the permission to read streams, the messages that the consumer delivers must not wait for this.
                tracing::warn!(%error, topic, "can't check for messages that a server restart left behind; grant $JS.API.STREAM.MSG.GET");
                self.checked = self.end;
                return Ok(Vec::new());
            }
        };
        if info.state.consumer_count == 1 {
            self.found = found.iter().map(|message| message.sequence).collect();
        }
        Ok(found)
    }

    /// Deletes the messages that are now stored here: the stream would keep them forever for a group that never gets them.
    pub async fn delete_stored(&mut self, client: &LazyClient, topic: &str) -> Result<(), Cause> {
        if self.found.is_empty() {
            return Ok(());
        }
        let stream = client
            .context()
            .await?
            .get_stream(stream_name(topic))
            .await?;
        for sequence in self.found.drain(..) {
            stream.delete_message(sequence).await?;
        }
        Ok(())
    }
}

/// The stream's messages from one sequence to another, and the sequence up to which that is complete.
pub(super) async fn read(
    stream: &Stream<Info>,
    topic: &str,
    from: u64,
    to: u64,
) -> Result<(Vec<StreamMessage>, u64), Cause> {
    let mut found: Vec<StreamMessage> = Vec::new();
    let mut checked = from.saturating_sub(1);
    while found.len() < MAX_UNACKED && checked < to {
        let next = stream.raw_message_builder().sequence(checked + 1);
        match next.next_by_subject(subject(topic)).send().await {
            Ok(message) if message.sequence <= to => {
                checked = message.sequence;
                found.push(message);
            }
            Ok(_) => checked = to,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => checked = to,
            Err(error) => return Err(error.into()),
        }
    }
    Ok((found, checked))
}
