//! Makes files: look whether there is one, else take the right to make it, make it, register it.
//!
//! An input is worked on only while its job is open, which is looked at once more right before the file is begun. What
//! became of it is written together with the registry's entry and the input's settling, when the file is whole and not
//! before. A worker that dies in between leaves a file that its successor makes anew, in the same place.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider::{
    Error, Result,
    batcher::{Batcher, BatcherOptions},
    breaker::{self, Breakers},
    failure::Failure,
    lease::{Item, Outcome},
    retry::Policy,
    runtime::{BoxError, Effect, Handled, Handler, Verdict, Worker, WorkerOptions},
};
use postrider_blob::{Key, Store};
use serde::Deserialize;
use sqlx::PgPool;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    EXPORT_JOB_INPUT, Settings,
    completion::Completer,
    counters,
    dependency::Dependency,
    file::{self, File},
    model::Input,
    reuse::Reuse,
    source::{Ended, Source, SourceError},
    store::{
        closing,
        work::{self, Found, Held, Standing},
    },
    trouble::Trouble,
};

/// The breakers' names.
pub const STORE: &str = "exports.store";
/// The breakers' names.
pub const SOURCE: &str = "exports.source";

/// Somebody else makes this very file: it will be there soon.
const BUSY: Duration = Duration::from_millis(500);

/// The lease is lost, or the job closed: the finalizer parks what is left of it.
const NOT_OURS: Duration = Duration::from_secs(5);

/// An outage took the last attempt but one; the last is kept for when it is over.
const OUTAGE: Duration = Duration::from_secs(10);

/// What a claim gives us of an input.
#[derive(Debug, Deserialize)]
struct Work {
    fence: i64,
    job: Uuid,
    #[serde(flatten)]
    input: Loose,
}

/// An input among other fields; stored ones were checked when they came.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Loose {
    index_key: String,
    effective_date: i32,
    #[serde(rename = "asofindicator")]
    asof_indicator: String,
}

impl From<Loose> for Input {
    fn from(loose: Loose) -> Self {
        Self {
            index_key: loose.index_key,
            effective_date: loose.effective_date,
            asof_indicator: loose.asof_indicator,
        }
    }
}

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The source can't be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The settings can't be used.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// The worker over the inputs. Call it inside a tokio runtime.
pub fn worker(
    pool: PgPool,
    store: Store,
    settings: &Settings,
    breakers: &Breakers,
    breaker: breaker::Settings,
) -> Result<Worker, WorkerError> {
    let policy = settings
        .policy()
        .map_err(|error| Error::invalid("exports.retry", error.to_string()))?;
    let batch = settings.worker.poll.batch_size;
    let at_once = batch.max(settings.concurrency) as usize;
    let exporter = Arc::new(Exporter {
        // One more for an input that was lost before.
        source: Source::open(&settings.source, &pool, settings.concurrency + 1)?,
        slots: Semaphore::new(settings.concurrency as usize),
        gzip: settings.file.gzip,
        policy: policy.clone(),
        to_store: Dependency::new(breakers.get_with(STORE, breaker)),
        to_source: Dependency::new(breakers.get_with(SOURCE, breaker)),
        opener: opener(&pool, settings, at_once),
        taker: taker(&pool, at_once),
        doorkeeper: doorkeeper(&pool, at_once),
        looker: looker(&store, at_once),
        store,
    });
    let completer = Arc::new(Completer::start(pool.clone()));
    let reuse = Arc::new(Reuse {
        pool: pool.clone(),
        store: exporter.store.clone(),
        settings: settings.file.reuse,
        to_store: Dependency::new(breakers.get_with(STORE, breaker)),
        completer: Arc::clone(&completer),
        progress: Mutex::default(),
    });
    counters::register();
    let handler = Handler::new(move |item| Arc::clone(&exporter).handle(item))
        .policy(policy)
        .concurrency(at_once)
        .batch_effect(|tx, found: Vec<Arc<Found>>| {
            Box::pin(async move {
                work::record(tx, &found).await?;
                postrider_crashpoint::point!("exports.recorded")?;
                Ok(())
            })
        })
        .on_dead(|item, failure| Some(record_death(item, failure)))
        .on_settled(move |item, outcome| {
            if let (Outcome::Done, Ok(work)) = (outcome, item.read::<Work>()) {
                completer.touched(work.job);
            }
        });
    let lease = settings.worker.lease.seconds;
    let options = WorkerOptions {
        lease,
        batch,
        // What is claimed ahead is lost time when the worker dies.
        prefetch: (at_once / 2).max(1),
        rescue_every: lease.min(Duration::from_secs(1)),
        ..WorkerOptions::default()
    };
    Ok(Worker::new(pool, &EXPORT_JOB_INPUT)?
        .options(options)
        .before_claim(move || Arc::clone(&reuse).ahead())
        .handle_others(handler))
}

const fn batches(name: &'static str, max_batch: usize) -> BatcherOptions {
    BatcherOptions {
        max_batch,
        ..BatcherOptions::new(name)
    }
}

fn opener(pool: &PgPool, settings: &Settings, most: usize) -> Batcher<Held, Option<Standing>> {
    let reuse = settings.file.reuse;
    let options = batches("export input lookup", most);
    Batcher::with_connection(pool.clone(), options, move |connection, held| {
        Box::pin(async move { Ok(work::open(connection, reuse, held).await?) })
    })
}

fn taker(pool: &PgPool, most: usize) -> Batcher<Held, bool> {
    let options = batches("export file lock", most);
    Batcher::with_connection(pool.clone(), options, |connection, held| {
        Box::pin(async move { Ok(work::take(connection, held).await?) })
    })
}

/// Is the job still open?
fn doorkeeper(pool: &PgPool, most: usize) -> Batcher<Uuid, bool> {
    let options = batches("export job lookup", most);
    Batcher::with_connection(pool.clone(), options, |connection, jobs: &[Uuid]| {
        Box::pin(async move {
            let open: HashSet<Uuid> = closing::still_open(connection, jobs)
                .await?
                .into_iter()
                .collect();
            Ok(jobs.iter().map(|job| open.contains(job)).collect())
        })
    })
}

fn looker(store: &Store, most: usize) -> Batcher<Key, Result<bool, postrider_blob::Error>> {
    let store = store.clone();
    Batcher::new(
        batches("export file lookup", most),
        move |keys: &[Key]| {
            let (store, keys) = (store.clone(), keys.to_vec());
            Box::pin(async move { Ok(store.present(keys).await) })
        },
    )
}

struct Exporter {
    source: Source,
    store: Store,
    gzip: bool,
    policy: Policy,
    slots: Semaphore,
    to_store: Dependency,
    to_source: Dependency,
    opener: Batcher<Held, Option<Standing>>,
    taker: Batcher<Held, bool>,
    doorkeeper: Batcher<Uuid, bool>,
    looker: Batcher<Key, Result<bool, postrider_blob::Error>>,
}

impl Exporter {
    async fn handle(self: Arc<Self>, item: Item) -> Result<Handled, BoxError> {
        let work: Work = item.read()?;
        let (held, input) = ((item.id, work.fence), Input::from(work.input));
        Ok(match self.find_or_make(&item, held, &input).await {
            Ok(found) => {
                counters::input(if found.reused { "reused" } else { "generated" }, 1);
                Handled::from(Verdict::Done).with_value(found)
            }
            Err(trouble) => self.verdict(&item, &input, trouble).into(),
        })
    }

    /// Sees to it that the input has its file.
    async fn find_or_make(&self, item: &Item, held: Held, input: &Input) -> Result<Found, Trouble> {
        // Before standing in line: there are many here at a time, and they share their statements.
        let standing = self.standing(held).await?;
        if let Some(found) = self.usable(held, &standing).await? {
            return Ok(found);
        }
        if standing.reusable {
            if !self.ask(self.taker.call(held)).await? {
                return Err(Trouble::Later(BUSY));
            }
            // Whoever had the right before may have made the file.
            let now = self.standing(held).await?;
            if now.known != standing.known
                && let Some(found) = self.usable(held, &now).await?
            {
                return Ok(found);
            }
        }
        // An input that was lost before runs alone, and does not stand in line: until it is done, no other such input is
        // looked at, and the next kill would find it waiting here.
        let _slot = if item.losses == 0 {
            self.slots.acquire().await.ok()
        } else {
            None
        };
        // Meanwhile the job may have been closed.
        if !self.ask(self.doorkeeper.call(standing.job_id)).await? {
            return Err(Trouble::Later(NOT_OURS));
        }
        let key = file::key(&standing.job_key, input, self.gzip);
        self.make(&key, input).await?;
        Ok(Found {
            held,
            path: self.store.url(&key),
            reused: false,
        })
    }

    /// Where the input stands, if it may be worked on.
    async fn standing(&self, held: Held) -> Result<Standing, Trouble> {
        match self.ask(self.opener.call(held)).await? {
            Some(standing) if standing.status.is_open() => Ok(standing),
            Some(_) | None => Err(Trouble::Later(NOT_OURS)),
        }
    }

    /// The file that is known for this key, if it may be used and is still there.
    async fn usable(&self, held: Held, standing: &Standing) -> Result<Option<Found>, Trouble> {
        let Some(path) = standing
            .known
            .clone()
            .filter(|_| standing.own || standing.reusable)
        else {
            return Ok(None);
        };
        // Another store than today's: its files are out of our reach.
        let Some(key) = self.store.key_of(&path) else {
            return Ok(None);
        };
        let looking = async {
            match self.looker.call(key.clone()).await {
                Ok(answer) => answer,
                Err(_) => Ok(self.store.head(&key).await?.is_some()),
            }
        };
        let present = self.to_store.call(looking).await?;
        Ok(present.then_some(Found {
            held,
            path,
            reused: !standing.own,
        }))
    }

    /// Makes the file: whole, or not at all.
    async fn make(&self, key: &Key, input: &Input) -> Result<(), Trouble> {
        // One cheap call finds out whether a store that was away is back, before a whole file is read for it.
        if self.to_store.is_suspect() {
            self.to_store.call(self.store.head(key)).await?;
        }
        let (store, source) = (self.to_store.enter().await?, self.to_source.enter().await?);
        postrider_crashpoint::point!("exports.before_file").map_err(injected)?;
        let rows = match self.source.rows(input).await {
            Ok(rows) => rows,
            Err(error) => return Err(source.left(Trouble::source(&error))),
        };
        let mut file = File::begin(&self.store, key, self.gzip);
        match rows.pour(&mut file).await {
            Ok(has_rows) if has_rows || self.source.allows_empty() => {}
            Ok(_) => {
                file.abort().await;
                source.answered();
                return Err(Trouble::no_data());
            }
            Err(Ended::Source(error)) => {
                file.abort().await;
                return Err(source.left(Trouble::source(&error)));
            }
            Err(Ended::Sink(error)) => {
                file.abort().await;
                return Err(store.left(Trouble::store(&error)));
            }
        }
        source.answered();
        postrider_crashpoint::point!("exports.before_finish").map_err(injected)?;
        if let Err(error) = file.finish().await {
            return Err(store.left(Trouble::store(&error)));
        }
        store.answered();
        postrider_crashpoint::point!("exports.after_file").map_err(injected)?;
        Ok(())
    }

    async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, postrider::Error>>,
    ) -> Result<T, Trouble> {
        answer.await.map_err(|error| Trouble::unanswered(&error))
    }

    fn verdict(&self, item: &Item, input: &Input, trouble: Trouble) -> Verdict {
        let (failure, outage) = match trouble {
            Trouble::Later(wait) => return Verdict::Snooze(wait),
            Trouble::Away(failure) => (failure, true),
            Trouble::Failed(failure) => (failure, false),
        };
        let made = u32::try_from(item.attempts).unwrap_or(0).saturating_add(1);
        tracing::warn!(
            index_key = input.index_key,
            effective_date = input.effective_date,
            asof_indicator = input.asof_indicator,
            attempts = made,
            error_code = failure.code(),
            error = failure.message(),
            "no file yet"
        );
        if outage && self.policy.delay(made, 0.5).is_none() {
            return Verdict::Snooze(OUTAGE);
        }
        Verdict::retry(failure)
    }
}

fn injected(error: postrider_crashpoint::Injected) -> Trouble {
    Trouble::Failed(Failure::from_error("INJECTED", &error))
}

/// A dead input fails its job, in the transaction that declares it dead.
fn record_death(item: &Item, failure: &Failure) -> Effect {
    counters::input("dlq", 1);
    let work = item.read::<Work>();
    let (code, message) = (failure.code().to_owned(), failure.message().to_owned());
    Box::new(move |tx| {
        Box::pin(async move {
            let work = work?;
            let reason = death(&work.input.into(), &code, &message);
            tracing::error!(job = %work.job, reason, "an input is in the DLQ");
            if closing::fail(tx, work.job, &reason).await? {
                counters::job("failed", 1);
            }
            Ok(())
        })
    })
}

/// What a failed job says.
pub(crate) fn death(input: &Input, code: &str, message: &str) -> String {
    let Input {
        index_key,
        effective_date,
        asof_indicator,
    } = input;
    format!("{index_key} {effective_date} {asof_indicator} moved to the DLQ: {code}: {message}")
}
