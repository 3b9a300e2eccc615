//! The consumer loop's batch mode: effects once, and one bad message fails alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::RetryPolicy;
use postrider::failure::Failure;
use postrider::inbox::Inbox;
use postrider::transport::{
    BatchHandler, BatchOutcome, Delivery, Message, MessageId, Published, Subscriber, Subscription,
    Transport,
};
use postrider::{BoxError, Verdict};
use postrider_testkit::{crash, eventually};
use postrider_transports::PostgresTransport;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::support::{database, pool};

const BATCH: usize = 10;

/// Writes one effect per message, once by the inbox. Every third batch panics, the message "bad" always fails, and its
/// failure is recorded.
struct Effects {
    pool: PgPool,
    inbox: Inbox,
    calls: AtomicUsize,
    committed: Arc<AtomicUsize>,
}

impl Effects {
    async fn write(&self, batch: &[Delivery]) -> Result<BatchOutcome, BoxError> {
        let mut tx = self.pool.begin().await?;
        let ids: Vec<String> = batch.iter().map(|one| one.message.id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let first = self.inbox.first_times(&mut tx, &ids).await?;
        for (delivery, first) in batch.iter().zip(first) {
            if &*delivery.message.payload == "\"bad\"" {
                return Err("a bad message".into());
            }
            if first {
                sqlx::query("insert into effect values ($1)")
                    .bind(delivery.message.id.uuid())
                    .execute(&mut *tx)
                    .await?;
            }
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(call % 3 != 1, "on purpose");
        let committed = Arc::clone(&self.committed);
        Ok(BatchOutcome::from(vec![Verdict::Done; batch.len()])
            .in_transaction(tx)
            .after_commit(async move {
                committed.fetch_add(1, Ordering::Relaxed);
            }))
    }
}

impl BatchHandler for Effects {
    fn handle<'a>(
        &'a self,
        batch: &'a [Delivery],
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(self.write(batch))
    }

    fn on_failure<'a>(
        &'a self,
        delivery: &'a Delivery,
        failure: Failure,
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(async move {
            let mut tx = self.pool.begin().await?;
            sqlx::query("insert into failure values ($1, $2)")
                .bind(delivery.message.id.uuid())
                .bind(failure.code())
                .execute(&mut *tx)
                .await?;
            Ok(BatchOutcome::from(vec![Verdict::retry(failure)]).in_transaction(tx))
        })
    }
}

fn messages(count: usize) -> Vec<Message> {
    let id = || MessageId::new(uuid::Uuid::new_v4());
    (0..count)
        .map(|n| Message::new(id(), "paid", n.to_string()))
        .collect()
}

async fn every_effect_happens_once(transport: Arc<PostgresTransport>, effects: PgPool) {
    let points = [
        "subscriber.before_batch_commit",
        "subscriber.before_batch_ack",
    ];
    let traps: Vec<_> = points
        .iter()
        .map(|point| crash::at(point).on_hit(2).error())
        .collect();
    // No unique constraint: a second effect would show.
    sqlx::raw_sql(
        "create table effect (message uuid); create table failure (message uuid, code text)",
    )
    .execute(&effects)
    .await
    .unwrap();
    transport.declare("paid", "wallet").await.unwrap();
    let mut messages = messages(60);
    messages[17].payload = "\"bad\"".into();
    let bad = messages[17].id.uuid();
    assert_eq!(
        transport.publish(&messages).await,
        vec![Published::Confirmed; 60]
    );
    let committed = Arc::new(AtomicUsize::new(0));
    let handler = Arc::new(Effects {
        pool: effects.clone(),
        inbox: Inbox::new("wallet").unwrap(),
        calls: AtomicUsize::new(0),
        committed: Arc::clone(&committed),
    });
    let subscription = Subscription::new("wallet", ["paid"])
        .unwrap()
        .lease(Duration::from_millis(1_500))
        .policy(RetryPolicy::fixed(Duration::from_millis(10), 10).unwrap());
    let stop = CancellationToken::new();
    let subscriber = Subscriber::batch(
        Arc::clone(&transport) as Arc<dyn Transport>,
        subscription,
        effects.clone(),
        BATCH,
        handler,
    );
    let running = tokio::spawn(subscriber.run(stop.clone()));
    let wanted: BTreeSet<uuid::Uuid> = messages
        .iter()
        .map(|message| message.id.uuid())
        .filter(|id| *id != bad)
        .collect();
    let written = async || -> Vec<uuid::Uuid> {
        sqlx::query_scalar("select message from effect")
            .fetch_all(&effects)
            .await
            .unwrap()
    };
    eventually("all effects happened", async || {
        let written: BTreeSet<uuid::Uuid> = written().await.into_iter().collect();
        if written == wanted {
            Ok(())
        } else {
            Err(written.len())
        }
    })
    .await;
    let failures = "select count(*) from failure where message = $1 and code = 'UNEXPECTED'";
    eventually("the bad message is a dead letter", async || {
        let failures: i64 = sqlx::query_scalar(failures)
            .bind(bad)
            .fetch_one(&effects)
            .await
            .unwrap();
        failures >= 10
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(written().await.len(), wanted.len(), "an effect twice");
    assert!(committed.load(Ordering::Relaxed) > 0);
    assert!(traps.iter().all(|trap| trap.fired() == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_effects_commit_with_the_acknowledgements_in_one_database() {
    let db = database().await;
    let transport = PostgresTransport::new(pool(db.connect_options())).unwrap();
    every_effect_happens_once(Arc::new(transport), db.pool()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_effects_commit_before_the_acknowledgements_in_another_database() {
    let (db, wallet) = (database().await, database().await);
    let transport = PostgresTransport::new(pool(db.connect_options())).unwrap();
    every_effect_happens_once(Arc::new(transport), wallet.pool()).await;
}
