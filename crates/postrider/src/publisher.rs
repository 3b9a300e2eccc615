//! The publisher: sends the items of a work table to a transport, and marks them done once the transport has confirmed.
//!
//! It is a batch handler for the worker, over the outbox or a service's own table. What it promises:
//!
//! - **Published means confirmed.** An item is done only after the transport's own confirmation. A crash in between
//!   publishes it again, with the same id.
//! - **Order per key** comes from the work table: only a key's head is claimed, and the next follows when it is
//!   settled.
//! - **Unroutable messages wait, visibly.** The reason is written to the row, `postrider_published_total` counts it as
//!   `unroutable`, no attempt is spent, and it is published once somebody has subscribed.
//! - **An unavailable transport costs nothing.** A breaker suspends calls, and items wait without spending attempts.
//!   Only a message that the transport rejects spends attempts. A service that bounds its attempts whatever the cause
//!   uses [`Outages::Count`].
//! - **No detour.** If the transport lives in the outbox's own database, most messages move in one statement, before
//!   the claims ([`Publisher::attach_to`]).

mod relay;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_crashpoint as crashpoint;
use sqlx::{AssertSqlSafe, PgPool};

use crate::breaker::{Breaker, Breakers, Outcome};
use crate::failure::{Category, Failure};
use crate::lease::{Item, WorkTable};
use crate::outbox::OUTBOX;
use crate::retry::RetryPolicy;
use crate::runtime::{BoxError, Handler, Verdict, Worker};
use crate::transport::{Message, Origin, Published, Relay, Transport};
use crate::{Result, internal::counters};

/// The error code of an unroutable item.
pub const UNROUTABLE: &str = "UNROUTABLE";

/// How long messages may move without leases; then items that need a claim get their turn.
const RELAY_TURN: Duration = Duration::from_secs(1);

const UNROUTABLE_MESSAGE: &str =
    "nobody has subscribed to this topic; it is published once somebody does";

/// Turns an item of a work table into a message; a failure makes it a dead letter.
pub type Envelope = dyn Fn(&Item) -> Result<Message, Failure> + Send + Sync;

/// What an unavailable transport, or a topic without subscribers, costs an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outages {
    /// Nothing: it waits.
    #[default]
    Wait,
    /// An attempt, like any other failure; no breaker is used.
    Count,
}

/// Options of a [`Publisher`].
#[derive(Debug, Clone, PartialEq)]
pub struct PublisherOptions {
    /// Maximum number of messages per call of the transport.
    pub batch: usize,
    /// Maximum number of concurrent calls.
    pub concurrency: usize,
    /// Deadline of a call. A call that exceeds it counts as unavailable, and what it published is published again.
    pub timeout: Duration,
    /// Delay before an unroutable message is retried.
    pub unroutable_wait: Duration,
    /// Delay after the transport was unavailable, while the breaker is still closed.
    pub unavailable_wait: Duration,
    /// Retry policy for rejected messages.
    pub policy: RetryPolicy,
    /// What an outage costs.
    pub outages: Outages,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self {
            batch: 500,
            concurrency: 2,
            timeout: Duration::from_secs(20),
            unroutable_wait: Duration::from_secs(30),
            unavailable_wait: Duration::from_secs(1),
            policy: RetryPolicy::default(),
            outages: Outages::Wait,
        }
    }
}

/// Publishes the items of one work table.
pub struct Publisher {
    transport: Arc<dyn Transport>,
    breaker: Arc<Breaker>,
    pool: PgPool,
    table: &'static WorkTable,
    origin: Origin,
    options: PublisherOptions,
    /// None: the topic is the item's kind, and the id is derived from its number.
    envelope: Option<Box<Envelope>>,
    /// Annotates items that wait for a subscriber.
    annotate: Arc<str>,
}

impl Publisher {
    /// Creates a publisher of this table; the topic is the item's kind, and the id is derived from its number (see
    /// [`Origin`]).
    pub async fn new(
        transport: Arc<dyn Transport>,
        breakers: &Breakers,
        pool: PgPool,
        table: &'static WorkTable,
    ) -> Result<Self> {
        let origin = Origin::load(&mut *pool.acquire().await?, table).await?;
        let breaker = breakers.get(transport.name());
        counters::register_transport(transport.name());
        Ok(Self {
            transport,
            breaker,
            pool,
            table,
            origin,
            options: PublisherOptions::default(),
            envelope: None,
            annotate: annotation(table).into(),
        })
    }

    /// Replaces the default options.
    #[must_use]
    pub fn options(mut self, options: PublisherOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how messages are made from items, e.g. with an id that the service itself has created.
    #[must_use]
    pub fn envelope(
        mut self,
        envelope: impl Fn(&Item) -> Result<Message, Failure> + Send + Sync + 'static,
    ) -> Self {
        self.envelope = Some(Box::new(envelope));
        self
    }

    /// Makes a worker of this table publish everything that it has no other handler for. From the library's outbox to a
    /// transport in the same database, most of it moves without leases.
    #[must_use]
    pub fn attach_to(self, worker: Worker) -> Worker {
        let plain = self.envelope.is_none() && self.options.outages == Outages::Wait;
        if !(plain && self.table.name == OUTBOX.name) {
            return worker.handle_others(self.handler());
        }
        let relay = Arc::new(relay::LeaseFreeRelay {
            transport: Arc::clone(&self.transport),
            pool: self.pool.clone(),
            request: Relay {
                origin: self.origin,
                except: worker.registered_kinds(),
                worker: "relay".to_owned(),
                turn: RELAY_TURN,
            },
            shares: tokio::sync::OnceCell::new(),
        });
        worker
            .handle_others(self.handler())
            .before_claim(move || Arc::clone(&relay).relay())
    }

    /// Turns the publisher into a handler, for [`Worker::handle`] or [`Worker::handle_others`].
    #[must_use]
    pub fn handler(self) -> Handler {
        let publisher = Arc::new(self);
        let options = publisher.options.clone();
        Handler::batch(options.batch, move |items| {
            let publisher = Arc::clone(&publisher);
            async move { publisher.publish(&items).await }
        })
        .concurrency(options.concurrency)
        .policy(options.policy)
    }

    async fn publish(&self, items: &[Item]) -> Result<Vec<Verdict>, BoxError> {
        let permit = match self.options.outages {
            Outages::Count => None,
            Outages::Wait => match self.breaker.permit() {
                Ok(permit) => Some(permit),
                Err(open) => return Ok(vec![Verdict::Snooze(open.retry_after); items.len()]),
            },
        };
        let mut verdicts: Vec<Option<Verdict>> = vec![None; items.len()];
        let mut messages = Vec::with_capacity(items.len());
        let mut positions = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let message = match &self.envelope {
                Some(envelope) => envelope(item),
                None => Ok(Message::from_item(self.origin, item)),
            };
            match message {
                Ok(message) => {
                    messages.push(message);
                    positions.push(position);
                }
                Err(failure) => verdicts[position] = Some(Verdict::Dead(failure)),
            }
        }
        let answers = self.call(&messages).await;
        let unavailable = |answer: &Published| matches!(answer, Published::Unavailable(_));
        if let Some(permit) = permit {
            permit.report(if !answers.is_empty() && answers.iter().all(unavailable) {
                Outcome::Unavailable
            } else {
                Outcome::Answered
            });
        }
        crashpoint::point!("publisher.after_publish")?;
        let mut unroutable = Vec::new();
        let mut counts = BTreeMap::new();
        for (position, answer) in positions.into_iter().zip(answers) {
            if answer == Published::Unroutable && self.options.outages == Outages::Wait {
                unroutable.push(items[position].id);
            }
            let (verdict, outcome) = self.classify(&items[position], answer);
            verdicts[position] = Some(verdict);
            *counts.entry(outcome).or_default() += 1;
        }
        for (outcome, messages) in counts {
            count(self.transport.name(), outcome, messages);
        }
        if !unroutable.is_empty() {
            self.explain(&unroutable).await?;
        }
        let snooze = Verdict::Snooze(self.options.unavailable_wait);
        Ok(verdicts
            .into_iter()
            .map(|verdict| verdict.unwrap_or_else(|| snooze.clone()))
            .collect())
    }

    async fn call(&self, messages: &[Message]) -> Vec<Published> {
        if messages.is_empty() {
            return Vec::new();
        }
        let limit = self.options.timeout;
        if let Ok(answers) = tokio::time::timeout(limit, self.transport.publish(messages)).await {
            return answers;
        }
        let text = format!("{} did not confirm within {limit:?}", self.transport.name());
        let failure = Failure::new("TIMEOUT", text);
        vec![Published::Unavailable(failure); messages.len()]
    }

    /// The verdict on the item, and a name for what happened.
    fn classify(&self, item: &Item, answer: Published) -> (Verdict, &'static str) {
        match answer {
            Published::Confirmed => (Verdict::Done, "confirmed"),
            Published::Unroutable => {
                let verdict = match self.options.outages {
                    Outages::Wait => Verdict::Snooze(self.options.unroutable_wait),
                    Outages::Count => Verdict::retry(Failure::with_category(
                        UNROUTABLE,
                        Category::System,
                        UNROUTABLE_MESSAGE,
                    )),
                };
                (verdict, "unroutable")
            }
            Published::Failed(failure) => (Verdict::retry(failure), "failed"),
            Published::Unavailable(failure) => {
                tracing::warn!(%failure, transport = self.transport.name(), item = item.id, "the transport is unavailable; the message is retried shortly");
                let verdict = match self.options.outages {
                    Outages::Wait => Verdict::Snooze(self.options.unavailable_wait),
                    // Whatever the transport calls it, an outage passes.
                    Outages::Count => Verdict::retry(Failure::with_category(
                        failure.code(),
                        Category::Network,
                        failure.message(),
                    )),
                };
                (verdict, "unavailable")
            }
        }
    }

    /// An annotation for people: it decides nothing, so it needs no fence.
    async fn explain(&self, items: &[i64]) -> Result<()> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.annotate)))
            .bind(items)
            .bind(UNROUTABLE)
            .bind(UNROUTABLE_MESSAGE)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

fn count(transport: &'static str, outcome: &'static str, messages: u64) {
    metrics::counter!("postrider_published_total", "transport" => transport, "outcome" => outcome)
        .increment(messages);
}

/// Built from the descriptor's constants only.
fn annotation(table: &WorkTable) -> String {
    let c = &table.columns;
    let category = c
        .error_category
        .map_or_else(String::new, |category| format!("{category} = 'SYSTEM',"));
    format!(
        "update {table} t set {code} = $2, {category} {message} = $3
where t.{id} = any($1) and t.{until} is not null and t.{code} is distinct from $2",
        table = table.name,
        code = c.error_code,
        message = c.error_message,
        id = c.id,
        until = c.lease_until,
    )
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("transport", &self.transport)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
