//! Handlers, and how they are called: one item or a batch, panics caught.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use super::batch_effect::{BoundValue, Value, Write};
use super::decide::{panicked, unexpected};
use super::{AfterCommit, Effect, Handled, Verdict};
use crate::failure::{Category, Failure};
use crate::lease::{Item, Outcome};
use crate::retry::RetryPolicy;

/// Any error that a handler returns with `?`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

type One = dyn Fn(Item) -> BoxFuture<'static, Result<Handled, BoxError>> + Send + Sync;
type Batch = dyn Fn(Vec<Item>) -> BoxFuture<'static, Result<Vec<Handled>, BoxError>> + Send + Sync;
type OnDead = dyn Fn(&Item, &Failure) -> Option<Effect> + Send + Sync;
type OnSettled = dyn Fn(&Item, &Outcome) + Send + Sync;

#[derive(Clone)]
enum Call {
    One(Arc<One>),
    Batch(Arc<Batch>, usize),
}

/// Handles one kind of item, within limits.
///
/// ```
/// use std::time::Duration;
/// use postrider::prelude::*;
///
/// let handler = Handler::new(|item: Item| async move {
///     let number: u32 = item.read()?;
///     println!("item {} says {number}", item.id);
///     Ok(Verdict::Done)
/// })
/// .concurrency(8)
/// .timeout(Duration::from_secs(30));
/// ```
#[derive(Clone)]
pub struct Handler {
    call: Call,
    on_dead: Option<Arc<OnDead>>,
    on_settled: Option<Arc<OnSettled>>,
    write: Option<Arc<Write>>,
    pub(super) policy: RetryPolicy,
    pub(super) concurrency: usize,
    pub(super) timeout: Option<Duration>,
}

impl Handler {
    /// Creates a handler of one item at a time.
    pub fn new<F, Fut, H>(call: F) -> Self
    where
        F: Fn(Item) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<H, BoxError>> + Send + 'static,
        H: Into<Handled> + 'static,
    {
        Self::with_call(Call::One(Arc::new(move |item| {
            let answer = call(item);
            async move { answer.await.map(Into::into) }.boxed()
        })))
    }

    /// Creates a handler of up to `max_batch` items per call, for work that is cheaper in bulk. It returns one verdict
    /// per item, in their order.
    pub fn batch<F, Fut, H>(max_batch: usize, call: F) -> Self
    where
        F: Fn(Vec<Item>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<H>, BoxError>> + Send + 'static,
        H: Into<Handled> + 'static,
    {
        let call: Arc<Batch> = Arc::new(move |items| {
            let answer = call(items);
            async move { Ok(answer.await?.into_iter().map(Into::into).collect()) }.boxed()
        });
        Self::with_call(Call::Batch(call, max_batch.max(1)))
    }

    fn with_call(call: Call) -> Self {
        Self {
            call,
            on_dead: None,
            on_settled: None,
            write: None,
            policy: RetryPolicy::default(),
            concurrency: 32,
            timeout: None,
        }
    }

    /// Sets the retry policy for failures.
    #[must_use]
    pub fn policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the maximum number of concurrent calls (default 32).
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Sets the deadline of a call; exceeding it is a failed attempt (`TIMEOUT`).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Adds writes to the transaction that marks an item dead, for whatever reason, including a lost worker.
    #[must_use]
    pub fn on_dead<F>(mut self, effect: F) -> Self
    where
        F: Fn(&Item, &Failure) -> Option<Effect> + Send + Sync + 'static,
    {
        self.on_dead = Some(Arc::new(effect));
        self
    }

    /// Registers a hook that runs after an item's settlement has committed, e.g. to count or log it. It must not block.
    /// It never runs for a settlement that didn't commit; after a crash or a lost connection it may not run for one
    /// that did.
    #[must_use]
    pub fn on_settled<F>(mut self, hook: F) -> Self
    where
        F: Fn(&Item, &Outcome) + Send + Sync + 'static,
    {
        self.on_settled = Some(Arc::new(hook));
        self
    }

    /// Writes the [values](Handled::with_value) of many items at once, in the transaction that settles them. It may be
    /// called again with the same values if that transaction rolls back.
    #[must_use]
    pub fn batch_effect<T, F>(mut self, write: F) -> Self
    where
        T: Send + Sync + 'static,
        F: for<'t> Fn(&'t mut PgConnection, Vec<Arc<T>>) -> BoxFuture<'t, Result<(), BoxError>>
            + Send
            + Sync
            + 'static,
    {
        self.write = Some(Arc::new(move |tx, values: Vec<Value>| {
            let values: Result<Vec<Arc<T>>, _> = values.into_iter().map(Arc::downcast).collect();
            match values {
                Ok(values) => write(tx, values),
                Err(_) => async {
                    Err("the answer's value is not of the type that batch_effect writes".into())
                }
                .boxed(),
            }
        }));
        self
    }

    /// Binds a value to the function that writes it.
    pub(super) fn bind_value(&self, value: Value) -> BoundValue {
        let write = self.write.clone().unwrap_or_else(|| {
            Arc::new(|_: &mut PgConnection, _| {
                async { Err("the answer has a value, but the handler has no batch_effect".into()) }
                    .boxed()
            })
        });
        BoundValue { value, write }
    }

    pub(super) fn max_batch(&self) -> usize {
        match self.call {
            Call::One(_) => 1,
            Call::Batch(_, max_batch) => max_batch,
        }
    }

    pub(super) const fn needs_item_copy(&self) -> bool {
        self.on_dead.is_some() || self.on_settled.is_some()
    }

    /// The hook to run when this outcome has committed.
    pub(super) fn after_commit(&self, item: Option<&Item>, outcome: &Outcome) -> AfterCommit {
        match (&self.on_settled, item) {
            (Some(hook), Some(item)) => {
                let (hook, item, outcome) = (Arc::clone(hook), item.clone(), outcome.clone());
                AfterCommit::new(move || hook(&item, &outcome))
            }
            _ => AfterCommit::default(),
        }
    }

    pub(super) fn dead_effect(&self, item: &Item, failure: &Failure) -> Option<Effect> {
        self.on_dead
            .as_ref()
            .and_then(|on_dead| on_dead(item, failure))
    }

    /// Calls the handler; whatever happens, there is one answer per item.
    pub(super) async fn run(&self, items: Vec<Item>) -> Vec<Handled> {
        let count = items.len();
        let call = async {
            match &self.call {
                // The executor passes one item per call; a loop here would hide a slow one.
                Call::One(call) => {
                    let mut answers = Vec::with_capacity(count);
                    for item in items {
                        answers.push(
                            call(item)
                                .await
                                .unwrap_or_else(|error| unexpected(error).into()),
                        );
                    }
                    Ok(answers)
                }
                Call::Batch(call, _) => call(items).await,
            }
        };
        let guarded = AssertUnwindSafe(call).catch_unwind();
        let answer = match self.timeout {
            Some(limit) => match tokio::time::timeout(limit, guarded).await {
                Ok(answer) => answer,
                Err(_) => return for_all(count, &Verdict::retry(timed_out(limit))),
            },
            None => guarded.await,
        };
        match answer {
            Ok(Ok(answers)) if answers.len() == count => answers,
            Ok(Ok(answers)) => for_all(count, &Verdict::retry(wrong_count(count, answers.len()))),
            Ok(Err(error)) => for_all(count, &unexpected(error)),
            Err(panic) => for_all(count, &panicked(&*panic)),
        }
    }
}

fn for_all(count: usize, verdict: &Verdict) -> Vec<Handled> {
    (0..count).map(|_| verdict.clone().into()).collect()
}

fn timed_out(limit: Duration) -> Failure {
    Failure::with_category(
        "TIMEOUT",
        Category::Network,
        format!("the handler took longer than {limit:?}"),
    )
}

fn wrong_count(expected: usize, got: usize) -> Failure {
    let message = format!("the batch handler returned {got} verdicts for {expected} items");
    Failure::with_category("UNEXPECTED", Category::System, message)
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler")
            .field("max_batch", &self.max_batch())
            .field("policy", &self.policy)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}
