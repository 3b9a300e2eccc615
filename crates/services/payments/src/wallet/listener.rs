//! The listener: takes messages in, many in one transaction, and tells what became of them.
//!
//! Effect and inbox commit together, and where the transport lives in the same database the acknowledgement does, too.
//! What goes wrong unexpectedly is the mode's business. `chance`: it is rolled back, written to `wallet.failure`, and the
//! message is acknowledged; the call back after a commit is made once. `assured`: the message comes again a bounded
//! number of times and is a dead letter then, which is written to `wallet.failure` first; the call back is written with
//! the deduction ([`super::notify`]).
//!
//! A wallet whose database is away, or a process that was killed, has not handled the message: it comes again either
//! way, and the inbox makes that once.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider::{
    error::database_is_transient,
    failure::{Category, Failure},
    lease::Outcome as Fate,
    retry::Policy,
    runtime::{Verdict, decide},
    transport::{Consumer, Delivery, Receipt, Subscription, Transport, TransportError},
    wake::Waker,
};
use sqlx::{Postgres, Transaction};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::books::{Bill, News};
use super::callback::{Callback, Ending};
use super::{Wallet, store};
use crate::{Settings, WALLET_OUTBOX, counters, model::Outcome, publish::TOPIC, settings::Mode};

/// All wallets of one installation share the messages.
pub const GROUP: &str = "wallet";

const WAIT: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// So many call backs may wait for their turn before no more messages are taken.
const BACKLOG: usize = 2_000;

/// The wallet's ear.
pub struct Listener {
    transport: Arc<dyn Transport>,
    subscription: Subscription,
    wallet: Wallet,
    waker: Waker,
    mode: Mode,
    policy: Policy,
    batch: usize,
    callback: Arc<dyn Callback>,
    calls: Arc<Semaphore>,
}

/// A message that could be read, and the right to settle it.
struct Held {
    bill: Bill,
    receipt: Receipt,
    /// Failed attempts before this one.
    attempts: u32,
}

/// A message that the listener failed over, as far as it is known.
#[derive(Clone, Copy)]
struct Whose {
    uuid: Option<Uuid>,
    message_id: Uuid,
    attempts: u32,
}

/// What keeps messages from being taken in.
enum Trouble {
    Database(sqlx::Error),
    /// A mistake of ours: an exception like any other.
    Panicked,
}

impl Listener {
    /// Listens with these settings. Call it inside a tokio runtime.
    pub fn new(
        transport: Arc<dyn Transport>,
        wallet: Wallet,
        settings: &Settings,
        callback: Arc<dyn Callback>,
    ) -> postrider::Result<Self> {
        let policy = settings.listener_policy().map_err(|error| {
            postrider::Error::invalid("payments.wallet.max_attempts", error.to_string())
        })?;
        Ok(Self {
            transport,
            subscription: Subscription::new(GROUP, [TOPIC])?
                .lease(settings.lease.seconds)
                .prefetch(2 * settings.wallet.batch)
                .policy(policy.clone()),
            policy,
            waker: Waker::new(wallet.pool.clone()),
            wallet,
            mode: settings.delivery,
            batch: settings.wallet.batch,
            callback,
            calls: Arc::new(Semaphore::new(settings.callback.concurrency)),
        })
    }

    /// Listens until the stop; then makes the call backs that are under way. Waits for a transport that is away.
    pub async fn run(self, stop: CancellationToken) -> postrider::Result<()> {
        let mut telling = JoinSet::new();
        let mut pause = Duration::from_millis(50);
        while !stop.is_cancelled() {
            let Some(opened) = stop.run_until_cancelled(self.open()).await else {
                break;
            };
            let ended = match opened {
                Ok((consumer, shares)) => {
                    let ended = self.listen(&*consumer, shares, &mut telling, &stop, &mut pause);
                    let ended = ended.await;
                    let closed = consumer.close().await;
                    ended.and(closed)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::warn!(%error, group = GROUP, "the wallet's listening waits");
                stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        while telling.join_next().await.is_some() {}
        Ok(())
    }

    async fn open(&self) -> Result<(Box<dyn Consumer>, bool), TransportError> {
        let consumer = self.transport.subscribe(self.subscription.clone()).await?;
        let shares = consumer.shares(&self.wallet.pool).await?;
        Ok((consumer, shares))
    }

    async fn listen(
        &self,
        consumer: &dyn Consumer,
        shares: bool,
        telling: &mut JoinSet<()>,
        stop: &CancellationToken,
        pause: &mut Duration,
    ) -> Result<(), TransportError> {
        loop {
            while telling.try_join_next().is_some() {}
            if telling.len() >= BACKLOG {
                telling.join_next().await;
                continue;
            }
            let receive = consumer.receive(self.batch, WAIT);
            let Some(received) = stop.run_until_cancelled(receive).await else {
                return Ok(());
            };
            let deliveries = received?;
            *pause = Duration::from_millis(50);
            if deliveries.is_empty() {
                continue;
            }
            let handling = AssertUnwindSafe(self.handle(consumer, shares, deliveries));
            match handling.catch_unwind().await {
                Ok(news) => self.tell(news, telling),
                // The receipts are gone with it: the messages come again when their lease has run out.
                Err(_) => {
                    tracing::error!("the wallet's listener panicked, which is a bug; going on");
                }
            }
        }
    }

    /// Handles a batch; says what there is to tell.
    async fn handle(
        &self,
        consumer: &dyn Consumer,
        shares: bool,
        deliveries: Vec<Delivery>,
    ) -> Vec<News> {
        let mut held = Vec::with_capacity(deliveries.len());
        for Delivery {
            message,
            receipt,
            attempts,
            ..
        } in deliveries
        {
            match Bill::read(&message) {
                Ok(bill) => held.push(Held {
                    bill,
                    receipt,
                    attempts,
                }),
                Err(failure) => {
                    let whose = Whose {
                        uuid: None,
                        message_id: message.id.uuid(),
                        attempts,
                    };
                    self.give_up(consumer, shares, receipt, whose, failure)
                        .await;
                }
            }
        }
        match self.together(consumer, shares, held).await {
            Ok(news) => news,
            // One of them is bad, or they were in somebody's way: each alone, so that one fails alone.
            Err(held) => {
                let mut news = Vec::new();
                for one in held {
                    let whose = Whose {
                        uuid: Some(one.bill.uuid),
                        message_id: one.bill.message_id,
                        attempts: one.attempts,
                    };
                    match self.alone(consumer, shares, one).await {
                        Ok(told) => news.extend(told),
                        Err((receipt, failure)) => {
                            self.give_up(consumer, shares, receipt, whose, failure)
                                .await;
                        }
                    }
                }
                news
            }
        }
    }

    /// All in one transaction; what the database refuses comes back.
    async fn together(
        &self,
        consumer: &dyn Consumer,
        shares: bool,
        held: Vec<Held>,
    ) -> Result<Vec<News>, Vec<Held>> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let attempts: Vec<u32> = held.iter().map(|held| held.attempts).collect();
        let (bills, receipts): (Vec<Bill>, Vec<Receipt>) = held
            .into_iter()
            .map(|held| (held.bill, held.receipt))
            .unzip();
        match self.attempt(consumer, shares, &bills, receipts).await {
            Ok(news) => Ok(news),
            Err((receipts, Trouble::Database(error))) if is_outage(&error) => {
                tracing::warn!(%error, messages = receipts.len(), "the wallet's database is away; they come again");
                let put_off = receipts
                    .into_iter()
                    .map(|receipt| (receipt, Verdict::Snooze(WAIT)));
                report(consumer.settle(put_off.collect()).await.map(drop));
                Ok(Vec::new())
            }
            Err((receipts, _)) => Err(bills
                .into_iter()
                .zip(receipts)
                .zip(attempts)
                .map(|((bill, receipt), attempts)| Held {
                    bill,
                    receipt,
                    attempts,
                })
                .collect()),
        }
    }

    async fn alone(
        &self,
        consumer: &dyn Consumer,
        shares: bool,
        Held { bill, receipt, .. }: Held,
    ) -> Result<Vec<News>, (Receipt, Failure)> {
        let attempt = self.attempt(consumer, shares, std::slice::from_ref(&bill), vec![receipt]);
        let (mut receipts, trouble) = match attempt.await {
            Ok(news) => return Ok(news),
            Err(failed) => failed,
        };
        let Some(receipt) = receipts.pop() else {
            return Ok(Vec::new());
        };
        let error = match trouble {
            Trouble::Database(error) => error,
            Trouble::Panicked => {
                let text = "the wallet's listener panicked, which is a bug";
                let failure = Failure::with_category("LISTENER_PANIC", Category::System, text);
                return Err((receipt, failure));
            }
        };
        if database_is_transient(&error) {
            tracing::warn!(%error, uuid = %bill.uuid, "the wallet can't take the payment in now; it comes again");
            report(
                consumer
                    .settle_one(receipt, Verdict::Snooze(WAIT))
                    .await
                    .map(drop),
            );
            return Ok(Vec::new());
        }
        Err((receipt, Failure::from_error("UNEXPECTED", &error)))
    }

    /// Deducts, commits and acknowledges. Only what went wrong before anything was settled is an error.
    async fn attempt(
        &self,
        consumer: &dyn Consumer,
        shares: bool,
        bills: &[Bill],
        receipts: Vec<Receipt>,
    ) -> Result<Vec<News>, (Vec<Receipt>, Trouble)> {
        let taking = AssertUnwindSafe(self.take_in(bills)).catch_unwind();
        let (mut tx, news) = match taking.await {
            Ok(Ok(taken)) => taken,
            Ok(Err(error)) => return Err((receipts, Trouble::Database(error))),
            Err(_) => return Err((receipts, Trouble::Panicked)),
        };
        if shares {
            if let Err(error) = consumer.settle_in(&mut tx, receipts).await {
                report(Err(error));
                return Ok(Vec::new());
            }
            if let Err(error) = tx.commit().await {
                // Nobody knows whether it committed; it comes again if it did not.
                tracing::warn!(%error, "the wallet's commit was not confirmed");
                return Ok(Vec::new());
            }
        } else {
            if let Err(error) = tx.commit().await {
                return Err((receipts, Trouble::Database(error)));
            }
            if let Err(error) = postrider_crashpoint::point!("wallet.before_ack") {
                tracing::warn!(%error, "not acknowledged; they come again");
            } else {
                let done = receipts.into_iter().map(|receipt| (receipt, Verdict::Done));
                report(consumer.settle(done.collect()).await.map(drop));
            }
        }
        counters::duplicates((bills.len() - news.len()) as u64);
        for outcome in [Outcome::Succeed, Outcome::Failed] {
            let ended = news.iter().filter(|news| news.outcome == outcome).count();
            counters::handled(outcome, ended as u64);
        }
        Ok(news)
    }

    async fn take_in(
        &self,
        bills: &[Bill],
    ) -> Result<(Transaction<'static, Postgres>, Vec<News>), sqlx::Error> {
        let owed = self.mode == Mode::Assured;
        let taken = store::take_in(&self.wallet.pool, bills, owed).await?;
        postrider_crashpoint::point!("wallet.before_commit")
            .map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))?;
        Ok(taken)
    }

    /// An exception over one message.
    async fn give_up(
        &self,
        consumer: &dyn Consumer,
        shares: bool,
        receipt: Receipt,
        whose: Whose,
        failure: Failure,
    ) {
        let shown = whose.uuid.map(|uuid| uuid.to_string());
        let uuid_text = shown.as_deref().unwrap_or("unreadable");
        let message_id = whose.message_id;
        if self.mode == Mode::Assured {
            let verdict = self.last_or_again(whose, uuid_text, failure).await;
            report(consumer.settle_one(receipt, verdict).await.map(drop));
            return;
        }
        match self
            .swallow(consumer, shares, receipt, whose, &failure)
            .await
        {
            Ok(()) => {
                counters::swallowed(1);
                tracing::error!(
                    uuid = uuid_text, message = %message_id, reason = "LISTENER_FAILED", error_code = failure.code(),
                    error = failure.message(), "the wallet's listener failed over a message and gave it up"
                );
            }
            Err(error) => {
                tracing::warn!(%error, uuid = uuid_text, "a failure could not be written down; the message comes again");
            }
        }
    }

    /// It comes again, or this was the last attempt and it is a dead letter. That is written down before: the message may come
    /// again all the same, and what was taken in outweighs a failure.
    async fn last_or_again(&self, whose: Whose, uuid: &str, failure: Failure) -> Verdict {
        let message = whose.message_id;
        let attempts = i32::try_from(whose.attempts).unwrap_or(i32::MAX);
        let (code, error) = (failure.code(), failure.message());
        let again = Verdict::retry(failure.clone());
        let is_last = matches!(
            decide(&self.policy, again.clone(), attempts, 0.5),
            Fate::Dead { .. }
        );
        if !is_last {
            tracing::warn!(uuid, %message, error_code = code, error, "the wallet's listener failed over a message; it comes again");
            return again;
        }
        let written = async {
            let mut connection = self.wallet.pool.acquire().await?;
            store::failed(&mut connection, whose.uuid, message, &failure).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, uuid, "a failure could not be written down; the message comes again");
            return Verdict::Snooze(WAIT);
        }
        tracing::error!(
            uuid, %message, reason = "LISTENER_FAILED", error_code = code, error,
            "the wallet's listener failed over a message for the last time; it is a dead letter"
        );
        again
    }

    /// Writes the failure down, in a transaction of its own after the rollback, and acknowledges.
    async fn swallow(
        &self,
        consumer: &dyn Consumer,
        shares: bool,
        receipt: Receipt,
        whose: Whose,
        failure: &Failure,
    ) -> Result<(), TransportError> {
        let trouble =
            |error: sqlx::Error| TransportError::of_engine(self.transport.name(), error.into());
        let mut tx = self.wallet.pool.begin().await.map_err(trouble)?;
        store::failed(&mut tx, whose.uuid, whose.message_id, failure)
            .await
            .map_err(trouble)?;
        if shares {
            consumer.settle_in(&mut tx, vec![receipt]).await?;
            return tx.commit().await.map_err(trouble);
        }
        tx.commit().await.map_err(trouble)?;
        consumer.ack(receipt).await.map(drop)
    }

    /// After the commit. `assured` has the call back in its outbox; `chance` makes one attempt.
    fn tell(&self, news: Vec<News>, telling: &mut JoinSet<()>) {
        if news.is_empty() {
            return;
        }
        if self.mode == Mode::Assured {
            self.waker.wake(&WALLET_OUTBOX);
            return;
        }
        for news in news {
            let (calls, callback) = (Arc::clone(&self.calls), Arc::clone(&self.callback));
            let wallet = self.wallet.clone();
            telling.spawn(async move {
                let _turn = calls.acquire().await;
                tell_once(&wallet, &*callback, news).await;
            });
        }
    }
}

async fn tell_once(wallet: &Wallet, callback: &dyn Callback, news: News) {
    if let Err(error) = postrider_crashpoint::point!("wallet.before_callback") {
        tracing::warn!(%error, uuid = %news.uuid, "no call back");
        return;
    }
    let ending = Ending {
        uuid: news.uuid,
        outcome: news.outcome,
        reason: news.reason.map(str::to_owned),
        trace: news.trace,
    };
    let Err(failure) = callback.tell(&ending).await else {
        return;
    };
    counters::callback_failed(1);
    tracing::warn!(
        uuid = %news.uuid, reason = "CALLBACK_FAILED", error_code = failure.code(), error = failure.message(),
        "the orchestrator could not be told how the payment ended; it is not told again"
    );
    if let Err(error) = store::untold(&wallet.pool, news.uuid, failure.message()).await {
        tracing::warn!(%error, uuid = %news.uuid, "that could not be written down either; its age will tell");
    }
}

/// Says something about the database and nothing about a message.
fn is_outage(error: &sqlx::Error) -> bool {
    database_is_transient(error) && !postrider::error::is_conflict(error)
}

fn report(settled: Result<(), TransportError>) {
    if let Err(error) = settled {
        tracing::warn!(%error, group = GROUP, "could not be settled; it comes again");
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("transport", &self.transport)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
