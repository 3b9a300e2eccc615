//! The work: five kinds of items, one for each way in which an effect can be made to happen once.
//!
//! Every attempt first has its outside effect, looked up before it is repeated, and then fails or succeeds as the item's
//! plan says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::RetryPolicy;
use postrider::breaker::Breakers;
use postrider::failure::{Category, Failure};
use postrider::inbox::{Inbox, InboxError};
use postrider::lease::Item;
use postrider::ledger::{Key, Ledger, LedgerError, Outcome};
use postrider::outbox::OUTBOX;
use postrider::publisher::{Publisher, PublisherOptions};
use postrider::transport::{Consumer, Message, Published, Subscription, Transport, TransportError};
use postrider::{BoxError, Effect, Handled, Handler, Verdict, Worker, WorkerOptions};
use postrider::{Error, Result};
use postrider_transports::PostgresTransport;
use sqlx::{PgConnection, PgPool};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::messages::consume;
use crate::outside;
use crate::stage::Place;

/// A row that commits with the settling, alone or with the rows of others.
pub const EFFECT: &str = "proof.effect";
/// Nothing but the outside effect; settled in shared commits.
pub const PLAIN: &str = "proof.plain";
/// Handed to a transport.
pub const PUBLISH: &str = "proof.publish";
/// A row in a transaction of the handler's own, guarded by the inbox.
pub const INBOX: &str = "proof.inbox";
/// A row that commits with the settling and with the request's entry in the ledger.
pub const LEDGER: &str = "proof.ledger";

/// Number of attempts after which an item is dead.
pub const MOST_ATTEMPTS: i32 = 4;
/// The code of a failure by plan.
pub const PLANNED: &str = "PLANNED";

const LOG: &str = "insert into proof.effect (key, step, attempts, losses) values ($1, $2, $3, $4)";
const SOON: Duration = Duration::from_millis(50);

/// What an item asks for.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Task {
    pub key: String,
    /// Number of attempts that fail.
    pub fails: i32,
    /// How long an attempt takes.
    pub millis: u64,
}

/// What is written of an item together with others.
struct Line {
    key: String,
    step: &'static str,
    attempts: i32,
    losses: i32,
}

/// Works until `stop`; a part that panics or gives up is followed by another, as a service manager would have it.
pub async fn supervise(
    place: Place,
    size: u32,
    name: String,
    lease: Duration,
    stop: CancellationToken,
) {
    let pool = place.pool(size);
    let transport = Arc::new(PostgresTransport::new(pool.clone()).unwrap());
    let (own, through) = (pool.clone(), Arc::clone(&transport));
    let working = keep(stop.clone(), move |until| {
        let (pool, place, transport, name) = (
            own.clone(),
            place.clone(),
            Arc::clone(&through),
            name.clone(),
        );
        tokio::spawn(async move {
            match worker(pool, &place, &transport, name, lease).await {
                Ok(worker) => worker.run(until).await.is_ok(),
                Err(_) => false,
            }
        })
    });
    let consuming = keep(stop, move |until| {
        let consuming = consume(Arc::clone(&transport), pool.clone(), policy(), lease, until);
        tokio::spawn(async move { consuming.await.is_ok() })
    });
    tokio::join!(working, consuming);
}

/// Lives one life after the other; each says whether it ended well, unless it panics.
pub async fn keep(stop: CancellationToken, life: impl Fn(CancellationToken) -> JoinHandle<bool>) {
    while !stop.is_cancelled() {
        let own = stop.child_token();
        let ended_well = life(own.clone()).await.unwrap_or(false);
        own.cancel();
        if !ended_well {
            tokio::time::sleep(SOON).await;
        }
    }
}

fn policy() -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_millis(20), MOST_ATTEMPTS.unsigned_abs()).unwrap()
}

async fn worker(
    pool: PgPool,
    place: &Place,
    transport: &Arc<PostgresTransport>,
    name: String,
    lease: Duration,
) -> Result<Worker> {
    let outside = place.outside;
    let policy = policy();
    let common = |handler: Handler| handler.policy(policy.clone()).concurrency(4);
    let with_effect = move |finish: bool| {
        Handler::new(move |item| async move {
            let (task, verdict) = attempt(&item, outside).await?;
            let step = match verdict {
                Verdict::Done => "done",
                Verdict::Retry { .. } | Verdict::Dead(_) => "failed",
                Verdict::Snooze(_) => return Ok(Handled::from(verdict)),
            };
            let handled = Handled::from(verdict);
            // Every other one is written together with others.
            if !finish && item.id % 2 == 0 {
                return Ok(handled.with_value(Line {
                    key: task.key,
                    step,
                    attempts: item.attempts,
                    losses: item.losses,
                }));
            }
            let finish = (finish && step == "done").then(|| task.key.clone());
            Ok(handled.with(log(step, &item, task.key, finish)))
        })
        .batch_effect(|tx, lines: Vec<Arc<Line>>| {
            Box::pin(async move {
                for line in lines {
                    write(tx, &line.key, line.step, line.attempts, line.losses).await?;
                }
                Ok(())
            })
        })
        .on_dead(|item, _| {
            item.read::<Task>()
                .ok()
                .map(|task| log("died", item, task.key, None))
        })
    };
    let plain = Handler::new(move |item| async move { Ok(attempt(&item, outside).await?.1) });
    let own = pool.clone();
    let inbox = Handler::new(move |item| {
        let pool = own.clone();
        async move {
            let (task, verdict) = attempt(&item, outside).await?;
            match handle_message(&pool, &item, &task).await {
                Ok(()) => Ok(verdict),
                Err(error) if error.is_transient() => Ok(Verdict::Snooze(SOON)),
                Err(error) => Err(error.into()),
            }
        }
    });
    let breakers = Breakers::default();
    let ways: [Arc<dyn Transport>; 2] = [Arc::new(Post { outside }), Arc::clone(transport) as _];
    let mut publishers = Vec::new();
    for way in ways {
        let publisher = Publisher::new(way, &breakers, pool.clone(), &OUTBOX).await?;
        publishers.push(publisher.options(PublisherOptions {
            batch: 4,
            unavailable_wait: SOON,
            policy: policy.clone(),
            ..PublisherOptions::default()
        }));
    }
    let [post, messages] = publishers
        .try_into()
        .map_err(|_| Error::Stopped("publishers"))?;
    let options = WorkerOptions {
        name,
        lease,
        batch: 8,
        prefetch: 8,
        poll_min: Duration::from_millis(10),
        poll_max: Duration::from_millis(100),
        rescue_every: Duration::from_millis(100),
        grace: Duration::from_secs(5),
        ..WorkerOptions::default()
    };
    let worker = Worker::new(pool, &OUTBOX)?
        .options(options)
        .handle(EFFECT, common(with_effect(false)))
        .handle(LEDGER, common(with_effect(true)))
        .handle(PLAIN, common(plain))
        .handle(INBOX, common(inbox))
        .handle(PUBLISH, post.handler());
    // MESSAGE: most go over ahead of the claims, the rest as ever.
    Ok(messages.attach_to(worker))
}

/// One attempt up to the database: the outside effect, then the verdict by plan.
async fn attempt(item: &Item, outside: SocketAddr) -> Result<(Task, Verdict), BoxError> {
    let task: Task = item.read()?;
    tokio::time::sleep(Duration::from_millis(task.millis)).await;
    let done = outside::once(outside, &task.key, &item.id.to_string()).await;
    let verdict = match done {
        Err(_) => Verdict::Snooze(SOON),
        Ok(()) if item.attempts < task.fails => Verdict::retry(Failure::with_category(
            PLANNED,
            Category::System,
            "this attempt was to fail",
        )),
        Ok(()) => Verdict::Done,
    };
    Ok((task, verdict))
}

/// The row that says what happened to the item, and the end of its request if it came by the ledger.
fn log(step: &'static str, item: &Item, key: String, finish: Option<String>) -> Effect {
    let (attempts, losses) = (item.attempts, item.losses);
    Box::new(move |tx| {
        Box::pin(async move {
            write(tx, &key, step, attempts, losses).await?;
            if let Some(request) = finish {
                let key = Key::new("proof", request)?;
                Ledger::default()
                    .finish(tx, &key, Outcome::Succeeded, None)
                    .await
                    .map_err(|error| match error {
                        LedgerError::Other(error) => BoxError::from(error),
                        other => BoxError::from(other),
                    })?;
            }
            Ok(())
        })
    })
}

pub async fn write(
    tx: &mut PgConnection,
    key: &str,
    step: &str,
    attempts: i32,
    losses: i32,
) -> Result<(), sqlx::Error> {
    sqlx::query(LOG)
        .bind(key)
        .bind(step)
        .bind(attempts)
        .bind(losses)
        .execute(tx)
        .await
        .map(drop)
}

/// As a consumer of somebody else's messages does: inbox and effect in one transaction, the settling later.
async fn handle_message(pool: &PgPool, item: &Item, task: &Task) -> Result<()> {
    let mut tx = pool.begin().await?;
    let inbox = Inbox::new("proof")?;
    match inbox.first_time(&mut tx, &task.key).await {
        Ok(true) => write(&mut tx, &task.key, "done", item.attempts, item.losses).await?,
        Ok(false) => {}
        Err(InboxError::Other(error)) => return Err(error),
        Err(InboxError::Busy) => return Err(sqlx::Error::PoolTimedOut.into()),
    }
    tx.commit().await?;
    Ok(())
}

/// A transport to the world outside; confirmed means that it was done there.
#[derive(Debug)]
struct Post {
    outside: SocketAddr,
}

impl Transport for Post {
    fn name(&self) -> &'static str {
        "post"
    }

    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(batch.len());
            for message in batch {
                let answer = match message.read::<Task>() {
                    Err(failure) => Published::Failed(failure),
                    Ok(task) => {
                        let id = message.id.to_string();
                        match outside::once(self.outside, &task.key, &id).await {
                            Ok(()) => Published::Confirmed,
                            Err(error) => {
                                Published::Unavailable(Failure::from_error("OUTSIDE", &error))
                            }
                        }
                    }
                };
                answers.push(answer);
            }
            answers
        })
    }

    fn declare<'a>(
        &'a self,
        _topic: &'a str,
        _group: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { Ok(()) })
    }

    fn subscribe<'a>(
        &'a self,
        _subscription: Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Consumer>, TransportError>> {
        Box::pin(async { Err(TransportError::Closed) })
    }
}
