//! Handlers and how they are called: alone or over a batch, panics caught.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use super::batch_effect::{Carried, Value, Write};
use super::decide::{panicked, unexpected};
use super::{AfterCommit, Effect, Handled, Verdict};
use crate::failure::{Category, Failure};
use crate::lease::{Item, Outcome};
use crate::retry::Policy;

/// Any error that a handler lets through with `?`.
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

/// What handles one kind of item, and under which limits.
#[derive(Clone)]
pub struct Handler {
    call: Call,
    on_dead: Option<Arc<OnDead>>,
    on_settled: Option<Arc<OnSettled>>,
    write: Option<Arc<Write>>,
    pub(super) policy: Policy,
    pub(super) concurrency: usize,
    pub(super) timeout: Option<Duration>,
}

impl Handler {
    /// A handler of one item at a time.
    pub fn new<F, Fut, H>(call: F) -> Self
    where
        F: Fn(Item) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<H, BoxError>> + Send + 'static,
        H: Into<Handled> + 'static,
    {
        Self::of(Call::One(Arc::new(move |item| {
            let answer = call(item);
            async move { answer.await.map(Into::into) }.boxed()
        })))
    }

    /// A handler of up to `most` items at once: fewer calls, for work that is cheaper by the dozen. It answers with one
    /// verdict per item, in their order.
    pub fn batch<F, Fut, H>(most: usize, call: F) -> Self
    where
        F: Fn(Vec<Item>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<H>, BoxError>> + Send + 'static,
        H: Into<Handled> + 'static,
    {
        let call: Arc<Batch> = Arc::new(move |items| {
            let answer = call(items);
            async move { Ok(answer.await?.into_iter().map(Into::into).collect()) }.boxed()
        });
        Self::of(Call::Batch(call, most.max(1)))
    }

    fn of(call: Call) -> Self {
        Self {
            call,
            on_dead: None,
            on_settled: None,
            write: None,
            policy: Policy::default(),
            concurrency: 32,
            timeout: None,
        }
    }

    /// How failures are tried again.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How many calls run at once (default 32).
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// How long a call may take; longer is a failed attempt (`TIMEOUT`).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Writes to make in the transaction that declares an item dead, whatever killed it: a lost worker, too.
    #[must_use]
    pub fn on_dead<F>(mut self, effect: F) -> Self
    where
        F: Fn(&Item, &Failure) -> Option<Effect> + Send + Sync + 'static,
    {
        self.on_dead = Some(Arc::new(effect));
        self
    }

    /// What to do after an item's settling has committed: count it, log it, tell somebody. Must not wait. It is not
    /// called for a settling that did not happen; after a crash or a lost connection not for one that did.
    #[must_use]
    pub fn on_settled<F>(mut self, tell: F) -> Self
    where
        F: Fn(&Item, &Outcome) + Send + Sync + 'static,
    {
        self.on_settled = Some(Arc::new(tell));
        self
    }

    /// Writes what answers [carry](Handled::with_value), many at once, in the transaction that settles their items. It may
    /// be called again with the same values, if that transaction came to nothing.
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
                Err(_) => async { Err("an answer carries a value of another type".into()) }.boxed(),
            }
        }));
        self
    }

    /// The value with its writer.
    pub(super) fn carried(&self, value: Value) -> Carried {
        let write = self.write.clone().unwrap_or_else(|| {
            Arc::new(|_: &mut PgConnection, _| {
                async { Err("an answer carries a value that nobody writes".into()) }.boxed()
            })
        });
        Carried { value, write }
    }

    pub(super) fn most(&self) -> usize {
        match self.call {
            Call::One(_) => 1,
            Call::Batch(_, most) => most,
        }
    }

    pub(super) const fn wants_the_item_again(&self) -> bool {
        self.on_dead.is_some() || self.on_settled.is_some()
    }

    /// What is told when this outcome has committed.
    pub(super) fn told(&self, item: Option<&Item>, outcome: &Outcome) -> AfterCommit {
        match (&self.on_settled, item) {
            (Some(tell), Some(item)) => {
                let (tell, item, outcome) = (Arc::clone(tell), item.clone(), outcome.clone());
                AfterCommit::new(move || tell(&item, &outcome))
            }
            _ => AfterCommit::default(),
        }
    }

    pub(super) fn effect_of_death(&self, item: &Item, failure: &Failure) -> Option<Effect> {
        self.on_dead
            .as_ref()
            .and_then(|on_dead| on_dead(item, failure))
    }

    /// Calls the handler; whatever happens, there is one answer per item.
    pub(super) async fn run(&self, items: Vec<Item>) -> Vec<Handled> {
        let count = items.len();
        let call = async {
            match &self.call {
                // One item per call is the executor's doing; a loop here would hide a slow one.
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
                Err(_) => return same(count, &Verdict::retry(overdue(limit))),
            },
            None => guarded.await,
        };
        match answer {
            Ok(Ok(answers)) if answers.len() == count => answers,
            Ok(Ok(answers)) => same(count, &Verdict::retry(miscounted(count, answers.len()))),
            Ok(Err(error)) => same(count, &unexpected(error)),
            Err(panic) => same(count, &panicked(&*panic)),
        }
    }
}

fn same(count: usize, verdict: &Verdict) -> Vec<Handled> {
    (0..count).map(|_| verdict.clone().into()).collect()
}

fn overdue(limit: Duration) -> Failure {
    Failure::with_category(
        "TIMEOUT",
        Category::Network,
        format!("the handler took longer than {limit:?}"),
    )
}

fn miscounted(asked: usize, got: usize) -> Failure {
    let message = format!("the batch handler answered {got} verdicts for {asked} items");
    Failure::with_category("UNEXPECTED", Category::System, message)
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler")
            .field("most", &self.most())
            .field("policy", &self.policy)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}
