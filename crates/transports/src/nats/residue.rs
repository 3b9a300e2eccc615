//! What a restarted server has left behind.
//!
//! A server writes down where a consumer stands only now and then, and some versions get it wrong when they start again: a
//! message that was stored and confirmed then lies below the place up to which everything counts as acknowledged, and is
//! never handed out. So after every new connection, once the group has come past what the stream held then, whatever still
//! lies there is read from the stream itself. Another group may need it still; then we have it already and recognise it.

use std::sync::atomic::Ordering::Relaxed;

use async_nats::jetstream::consumer::{DeliverPolicy, PullConsumer};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Info, LastRawMessageErrorKind, Stream};

use super::{Link, MOST, stream_name, subject};
use crate::broker::Cause;

#[derive(Debug, Default)]
pub(super) struct Residue {
    /// The connection, counted, whose beginning was seen.
    connection: u64,
    /// Up to here everything was looked at.
    seen: u64,
    /// Up to here a restart may have left something.
    end: u64,
    /// Taken from the stream, to be deleted there once it is stored here.
    taken: Vec<u64>,
}

impl Residue {
    /// What is left behind, in order and in pieces; empty when there is nothing, or when it is too early to tell.
    pub async fn find(
        &mut self,
        link: &Link,
        topic: &str,
        consumer: &PullConsumer,
    ) -> Result<Vec<StreamMessage>, Cause> {
        self.taken.clear();
        let context = link.context().await?;
        let connection = context.client().statistics().connects.load(Relaxed);
        if self.connection == connection && self.seen >= self.end {
            return Ok(Vec::new());
        }
        let stream = context.get_stream(stream_name(topic)).await?;
        let info = stream.cached_info();
        if self.connection != connection {
            self.end = info.state.last_sequence;
            self.connection = connection;
        }
        let group = consumer.get_info().await?;
        // A group gets what comes after its first subscription.
        let DeliverPolicy::ByStartSequence { start_sequence } = group.config.deliver_policy else {
            self.seen = self.end;
            return Ok(Vec::new());
        };
        self.seen = self.seen.max(start_sequence.saturating_sub(1));
        if group.ack_floor.stream_sequence < self.end {
            return Ok(Vec::new());
        }
        let found = match read(&stream, topic, self.seen + 1, self.end).await {
            Ok((found, seen)) => {
                self.seen = seen;
                found
            }
            Err(error) => {
                // Without the right to read a stream there is still the consumer: what it hands out must not wait for this.
                tracing::warn!(%error, topic, "can't see what a restart left behind; allow $JS.API.STREAM.MSG.GET");
                self.seen = self.end;
                return Ok(Vec::new());
            }
        };
        if info.state.consumer_count == 1 {
            self.taken = found.iter().map(|message| message.sequence).collect();
        }
        Ok(found)
    }

    /// It is stored here; the stream need not keep it for a group that will never be given it.
    pub async fn settle(&mut self, link: &Link, topic: &str) -> Result<(), Cause> {
        if self.taken.is_empty() {
            return Ok(());
        }
        let stream = link.context().await?.get_stream(stream_name(topic)).await?;
        for number in self.taken.drain(..) {
            stream.delete_message(number).await?;
        }
        Ok(())
    }
}

/// What the stream holds from one number to another, and up to which number that is all there is.
pub(super) async fn read(
    stream: &Stream<Info>,
    topic: &str,
    from: u64,
    to: u64,
) -> Result<(Vec<StreamMessage>, u64), Cause> {
    let mut found: Vec<StreamMessage> = Vec::new();
    let mut seen = from.saturating_sub(1);
    while found.len() < MOST && seen < to {
        let next = stream.raw_message_builder().sequence(seen + 1);
        match next.next_by_subject(subject(topic)).send().await {
            Ok(message) if message.sequence <= to => {
                seen = message.sequence;
                found.push(message);
            }
            Ok(_) => seen = to,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => seen = to,
            Err(error) => return Err(error.into()),
        }
    }
    Ok((found, seen))
}
