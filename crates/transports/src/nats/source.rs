//! A group's messages of one topic, in the stream's order.
//!
//! A pull consumer hands out messages to whoever asks: two intakes of a group get pieces, and an answer that gets lost on its
//! way leaves a hole until the server delivers it again. So order is kept by the stream's own numbers: a message is let
//! through when all before it were acknowledged or are let through first. A hole is waited for, but not for long: what dead
//! hands hold would come back only after the server's time limit, and a server that lost the group's place would keep us
//! waiting for what is long gone. What the stream itself still has there is read from it; whoever brings it again is late.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::{Acker, StreamMessage};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use postrider::transport::{Message, TransportError};
use tokio::time::Instant;

use super::residue::{self, Residue};
use super::{ACK_WAIT, Link, MOST, NAME, consumer_name, stream_name, unavailable};
use crate::broker::{Arrival, Cause, Source};

const MOST_BYTES: usize = 8 * 1024 * 1024;
/// How long to wait before a hole is looked at again.
const HOLE: Duration = Duration::from_millis(20);
/// How long others have to acknowledge what is missing here.
const OTHERS: Duration = Duration::from_secs(2);
/// What an answer may take beyond the wait that was asked for.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct NatsSource {
    link: Link,
    topic: String,
    group: String,
    consumer: Option<PullConsumer>,
    /// The number in the stream that comes next.
    next: u64,
    /// Pulled and not let through, by number.
    held: BTreeMap<u64, Held>,
    /// Let through and not acknowledged.
    taken: Vec<Acker>,
    residue: Residue,
    /// Something is missing, since then.
    hole: Option<Instant>,
}

struct Held {
    message: Message,
    acker: Acker,
    since: Instant,
}

impl NatsSource {
    pub fn new(link: Link, topic: &str, group: &str) -> Self {
        Self {
            link,
            topic: topic.to_owned(),
            group: group.to_owned(),
            consumer: None,
            next: 0,
            held: BTreeMap::new(),
            taken: Vec::new(),
            residue: Residue::default(),
            hole: None,
        }
    }

    async fn fetch(&mut self, wait: Duration) -> Result<Vec<Message>, Cause> {
        self.taken.clear();
        // The server will deliver these again, perhaps to somebody else.
        self.held
            .retain(|_, held| held.since.elapsed() < ACK_WAIT * 3 / 4);
        let consumer = self.consumer().await?;
        let left = self
            .residue
            .find(&self.link, &self.topic, &consumer)
            .await?;
        if !left.is_empty() {
            tracing::warn!(
                count = left.len(),
                topic = self.topic,
                group = self.group,
                "the server had left messages behind; they are taken from the stream"
            );
            return Ok(self.open_all(left));
        }
        let before = self.held.len();
        self.pull(&consumer, MOST.saturating_sub(before), None)
            .await?;
        if self.held.is_empty() {
            self.pull(&consumer, 1, Some(wait)).await?;
        }
        let batch = self.let_through();
        if !batch.is_empty() || self.held.is_empty() {
            self.hole = None;
            return Ok(batch);
        }
        self.look(&consumer).await?;
        let batch = self.let_through();
        if !batch.is_empty() {
            return Ok(batch);
        }
        if self.hole.get_or_insert_with(Instant::now).elapsed() < OTHERS {
            tokio::time::sleep(HOLE).await;
            return Ok(Vec::new());
        }
        self.fill().await
    }

    /// Reads from the stream what is missing before the first that is held.
    async fn fill(&mut self) -> Result<Vec<Message>, Cause> {
        let Some((first, _)) = self.held.first_key_value() else {
            return Ok(Vec::new());
        };
        let context = self.link.context().await?;
        let stream = context.get_stream(stream_name(&self.topic)).await?;
        self.hole = None;
        match residue::read(&stream, &self.topic, self.next, first - 1).await {
            Ok((missing, seen)) => {
                self.next = seen + 1;
                Ok(self.open_all(missing))
            }
            Err(error) => {
                // It comes again from the server, only later.
                tracing::warn!(%error, topic = self.topic, "can't see what is missing; allow $JS.API.STREAM.MSG.GET");
                Ok(Vec::new())
            }
        }
    }

    fn open_all(&self, messages: Vec<StreamMessage>) -> Vec<Message> {
        let open =
            |message: StreamMessage| self.open(message.sequence, message.headers, &message.payload);
        messages.into_iter().map(open).collect()
    }

    async fn consumer(&mut self) -> Result<PullConsumer, Cause> {
        if let Some(consumer) = &self.consumer {
            return Ok(consumer.clone());
        }
        let context = self.link.context().await?;
        let stream = context.get_stream(stream_name(&self.topic)).await?;
        let consumer: PullConsumer = stream.get_consumer(&consumer_name(&self.group)).await?;
        self.next = consumer.cached_info().ack_floor.stream_sequence + 1;
        self.consumer = Some(consumer.clone());
        Ok(consumer)
    }

    /// What is there now, or what comes first within this time.
    async fn pull(
        &mut self,
        consumer: &PullConsumer,
        most: usize,
        wait: Option<Duration>,
    ) -> Result<(), Cause> {
        if most == 0 {
            return Ok(());
        }
        let limit = wait.unwrap_or_default() + GRACE;
        let pulling = async {
            let mut batch = match wait {
                Some(wait) => {
                    let batch = consumer.batch().max_messages(most).expires(wait);
                    batch.messages().await?
                }
                None => {
                    let batch = consumer.fetch().max_messages(most).max_bytes(MOST_BYTES);
                    batch.expires(GRACE).messages().await?
                }
            };
            while let Some(message) = batch.next().await {
                self.hold(message?)?;
            }
            Ok(())
        };
        // If an answer got lost, what it carried comes again.
        tokio::time::timeout(limit, pulling).await.unwrap_or(Ok(()))
    }

    fn hold(&mut self, came: async_nats::jetstream::Message) -> Result<(), Cause> {
        let number = came.info()?.stream_sequence;
        let (came, acker) = came.split();
        let held = Held {
            message: self.open(number, came.headers.unwrap_or_default(), &came.payload),
            acker,
            since: Instant::now(),
        };
        self.held.insert(number, held);
        Ok(())
    }

    fn open(&self, number: u64, headers: HeaderMap, payload: &[u8]) -> Message {
        let mut id = None;
        let mut fields = Vec::new();
        for (name, values) in headers.iter() {
            let name: &str = name.as_ref();
            let Some(value) = values.first() else {
                continue;
            };
            if name.eq_ignore_ascii_case("nats-msg-id") {
                id = Some(value.to_string());
            } else if !name.to_ascii_lowercase().starts_with("nats-") {
                fields.push((name.to_owned(), value.to_string()));
            }
        }
        let arrival = Arrival {
            id,
            place: [NAME, &stream_name(&self.topic), &number.to_string()],
            topic: &self.topic,
            key: None,
            payload,
            fields,
        };
        arrival.open()
    }

    fn let_through(&mut self) -> Vec<Message> {
        let mut batch = Vec::new();
        while let Some(first) = self.held.first_entry() {
            let number = *first.key();
            if number > self.next {
                break;
            }
            self.next = self.next.max(number + 1);
            let held = first.remove();
            batch.push(held.message);
            self.taken.push(held.acker);
        }
        batch
    }

    /// Somebody else may have acknowledged what is missing; or nobody has it.
    async fn look(&mut self, consumer: &PullConsumer) -> Result<(), Cause> {
        let info = consumer.get_info().await?;
        self.next = self.next.max(info.ack_floor.stream_sequence + 1);
        if info.num_ack_pending == self.held.len()
            && let Some((first, _)) = self.held.first_key_value()
        {
            self.next = self.next.max(*first);
        }
        Ok(())
    }
}

impl Source for NatsSource {
    fn fetch(&mut self, wait: Duration) -> BoxFuture<'_, Result<Vec<Message>, TransportError>> {
        Box::pin(async move {
            let fetched = self.fetch(wait).await;
            if fetched.is_err() {
                self.consumer = None;
            }
            fetched.map_err(unavailable)
        })
    }

    fn acknowledge(&mut self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            for acker in self.taken.drain(..) {
                acker.ack().await.map_err(unavailable)?;
            }
            let settled = self.residue.settle(&self.link, &self.topic).await;
            settled.map_err(unavailable)
        })
    }

    fn rest(&mut self, how_long: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }
}
