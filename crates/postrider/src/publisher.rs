//! The publisher: gives what a work table holds to a transport, and marks it as done once the transport has confirmed.
//!
//! It is a batch handler for the worker, over the outbox or over a service's own table. The promises:
//!
//! - **Published means confirmed.** An item is done only after the transport's own confirmation. A crash in between
//!   publishes it again, with the same id.
//! - **Order per key** is the work table's: only a key's head is claimed, and the next follows when it is settled.
//! - **Unroutable waits, visibly**: the reason is written to the row, `postrider_published_total` counts it as
//!   `unroutable`, no attempt is spent, and it goes out once somebody has subscribed.
//! - **A transport that is away costs nothing**: a breaker leaves it alone for a while, and items wait without spending
//!   attempts. Only a message that the transport refuses uses up attempts. A service whose tries are bounded whatever
//!   the cause says so: [`Outages::Count`].
//! - **Nothing leaves the database for nothing.** Where the transport lives in the outbox's own database, most messages go
//!   over in one statement, ahead of the claims ([`Publisher::attach_to`]).

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
use crate::retry::Policy;
use crate::runtime::{BoxError, Handler, Verdict, Worker};
use crate::transport::{Message, Origin, Published, Relay, Transport};
use crate::{Result, counters};

/// The code that an unroutable item shows.
pub const UNROUTABLE: &str = "UNROUTABLE";

/// How long messages may go over in one go; then what needs a claim gets its turn.
const TURN: Duration = Duration::from_secs(1);

const NOBODY: &str = "nobody has subscribed to this topic; it goes out once somebody has";

/// Turns an item of a work table into a message; a failure is a dead letter.
pub type Envelope = dyn Fn(&Item) -> Result<Message, Failure> + Send + Sync;

/// What a transport that is away, or a topic that nobody subscribed to, costs an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outages {
    /// Nothing: it waits.
    #[default]
    Wait,
    /// An attempt, like every other failure; no breaker stands in between.
    Count,
}

/// How a publisher works.
#[derive(Debug, Clone, PartialEq)]
pub struct PublisherOptions {
    /// At most so many messages per call of the transport.
    pub batch: usize,
    /// At most so many calls at once.
    pub concurrency: usize,
    /// A call that takes longer counts as unavailable; what it published is published again.
    pub timeout: Duration,
    /// How long an unroutable message waits before it is tried again.
    pub unroutable_wait: Duration,
    /// How long to wait after the transport was unavailable, while the breaker is still closed.
    pub unavailable_wait: Duration,
    /// How a refused message is tried again.
    pub policy: Policy,
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
            policy: Policy::default(),
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
    /// None: the topic is the item's kind and the id follows from its number.
    envelope: Option<Box<Envelope>>,
    /// Writes the reason beside items that wait for a subscriber.
    annotate: Arc<str>,
}

impl Publisher {
    /// A publisher of this table; the topic is the item's kind and the id follows from its number (see [`Origin`]).
    pub async fn new(
        transport: Arc<dyn Transport>,
        breakers: &Breakers,
        pool: PgPool,
        table: &'static WorkTable,
    ) -> Result<Self> {
        let origin = Origin::of(&mut *pool.acquire().await?, table).await?;
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

    /// Other settings than the default ones.
    #[must_use]
    pub fn options(mut self, options: PublisherOptions) -> Self {
        self.options = options;
        self
    }

    /// Messages are made in another way, e.g. with an id that the service itself has minted.
    #[must_use]
    pub fn envelope(
        mut self,
        envelope: impl Fn(&Item) -> Result<Message, Failure> + Send + Sync + 'static,
    ) -> Self {
        self.envelope = Some(Box::new(envelope));
        self
    }

    /// Lets a worker of this table publish everything that it has no handler of its own for. From the engine's outbox to a
    /// transport in the same database most of it goes without leases.
    #[must_use]
    pub fn attach_to(self, worker: Worker) -> Worker {
        let plain = self.envelope.is_none() && self.options.outages == Outages::Wait;
        if !(plain && self.table.name == OUTBOX.name) {
            return worker.handle_others(self.handler());
        }
        let relaying = Arc::new(relay::Relaying {
            transport: Arc::clone(&self.transport),
            pool: self.pool.clone(),
            order: Relay {
                origin: self.origin,
                except: worker.kinds_of_its_own(),
                worker: "relay".to_owned(),
                turn: TURN,
            },
            shares: tokio::sync::OnceCell::new(),
        });
        worker
            .handle_others(self.handler())
            .before_claim(move || Arc::clone(&relaying).ahead())
    }

    /// As a handler, for [`crate::runtime::Worker::handle`] or `handle_others`.
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
        let mut places = Vec::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            let message = match &self.envelope {
                Some(envelope) => envelope(item),
                None => Ok(Message::of_item(self.origin, item)),
            };
            match message {
                Ok(message) => {
                    messages.push(message);
                    places.push(place);
                }
                Err(failure) => verdicts[place] = Some(Verdict::Dead(failure)),
            }
        }
        let answers = self.call(&messages).await;
        let away = |answer: &Published| matches!(answer, Published::Unavailable(_));
        if let Some(permit) = permit {
            permit.report(if !answers.is_empty() && answers.iter().all(away) {
                Outcome::Unavailable
            } else {
                Outcome::Answered
            });
        }
        crashpoint::point!("publisher.after_publish")?;
        let mut unroutable = Vec::new();
        let mut counts = BTreeMap::new();
        for (place, answer) in places.into_iter().zip(answers) {
            if answer == Published::Unroutable && self.options.outages == Outages::Wait {
                unroutable.push(items[place].id);
            }
            let (verdict, outcome) = self.judge(&items[place], answer);
            verdicts[place] = Some(verdict);
            *counts.entry(outcome).or_default() += 1;
        }
        for (outcome, messages) in counts {
            count(self.transport.name(), outcome, messages);
        }
        if !unroutable.is_empty() {
            self.explain(&unroutable).await?;
        }
        let put_off = Verdict::Snooze(self.options.unavailable_wait);
        Ok(verdicts
            .into_iter()
            .map(|verdict| verdict.unwrap_or_else(|| put_off.clone()))
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

    /// What becomes of the item, and in one word what happened.
    fn judge(&self, item: &Item, answer: Published) -> (Verdict, &'static str) {
        match answer {
            Published::Confirmed => (Verdict::Done, "confirmed"),
            Published::Unroutable => {
                let verdict = match self.options.outages {
                    Outages::Wait => Verdict::Snooze(self.options.unroutable_wait),
                    Outages::Count => {
                        Verdict::retry(Failure::with_category(UNROUTABLE, Category::System, NOBODY))
                    }
                };
                (verdict, "unroutable")
            }
            Published::Failed(failure) => (Verdict::retry(failure), "failed"),
            Published::Unavailable(failure) => {
                tracing::warn!(%failure, transport = self.transport.name(), item = item.id, "publishing waits");
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

    /// Only a note for people: it changes nothing that decides, hence it needs no fence.
    async fn explain(&self, items: &[i64]) -> Result<()> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.annotate)))
            .bind(items)
            .bind(UNROUTABLE)
            .bind(NOBODY)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

fn count(transport: &'static str, outcome: &'static str, messages: u64) {
    metrics::counter!("postrider_published_total", "transport" => transport, "outcome" => outcome)
        .increment(messages);
}

/// From the descriptor's constants alone.
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
