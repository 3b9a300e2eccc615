//! Generates files: reuse an existing one, or lock the file, generate it and register it.
//!
//! An input is worked on only while its job is open, which is checked again right before its file is started. The input's
//! file is recorded together with the registry entry and the settlement, once the file is complete. If a worker dies in
//! between, its successor generates the file again at the same path.

mod completer;
mod dependency;
mod reuse;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider::{
    BoxError, Effect, Error, Handled, Handler, Result, RetryPolicy, Verdict, Worker, WorkerOptions,
    batcher::{Batcher, BatcherOptions},
    breaker::{self, Breakers},
    failure::Failure,
    lease::{Item, Outcome},
};
use postrider_blob::{Key, Store};
use serde::Deserialize;
use sqlx::PgPool;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    EXPORT_JOB_INPUT, Settings,
    error::FileError,
    file::{self, File},
    gauges,
    model::Input,
    source::{CopyError, Source, SourceError},
    store::{
        closing,
        work::{self, Claim, InputContext, InputFile},
    },
};
use completer::Completer;
pub(crate) use completer::complete;
use dependency::Dependency;
use reuse::Reuse;

/// Name of the breaker around the object store.
pub const STORE: &str = "exports.store";
/// Name of the breaker around the source database.
pub const SOURCE: &str = "exports.source";

/// Snooze while another worker generates the same file.
const LOCKED_DELAY: Duration = Duration::from_millis(500);

/// Snooze when the lease is lost or the job is closed; the finalizer parks the input.
const NOT_OURS_DELAY: Duration = Duration::from_secs(5);

/// Snooze when an outage would spend the last attempt: that one is kept for after the outage.
const OUTAGE_DELAY: Duration = Duration::from_secs(10);

/// The payload of a claimed input.
#[derive(Debug, Deserialize)]
struct ClaimedInput {
    fence: i64,
    job: Uuid,
    #[serde(flatten)]
    input: InputKey,
}

/// An [`Input`] among other fields, which that type would reject.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputKey {
    index_key: String,
    effective_date: i32,
    #[serde(rename = "asofindicator")]
    asof_indicator: String,
}

impl From<InputKey> for Input {
    fn from(key: InputKey) -> Self {
        Self {
            index_key: key.index_key,
            effective_date: key.effective_date,
            asof_indicator: key.asof_indicator,
        }
    }
}

/// Why the worker can't be built.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The source can't be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The settings can't be used.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// The worker for export inputs. Must be called inside a tokio runtime.
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
    let concurrency = batch.max(settings.concurrency) as usize;
    let exporter = Arc::new(Exporter {
        // One more for an input whose worker was lost before.
        source: Source::open(&settings.source, &pool, settings.concurrency + 1)?,
        slots: Semaphore::new(settings.concurrency as usize),
        gzip: settings.file.gzip,
        policy: policy.clone(),
        store_calls: Dependency::new(breakers.get_with(STORE, breaker)),
        source_calls: Dependency::new(breakers.get_with(SOURCE, breaker)),
        contexts: contexts(&pool, settings, concurrency),
        file_locks: file_locks(&pool, concurrency),
        open_jobs: open_jobs(&pool, concurrency),
        existing_files: existing_files(&store, concurrency),
        store,
    });
    let completer = Arc::new(Completer::start(pool.clone()));
    let reuse = Arc::new(Reuse {
        pool: pool.clone(),
        store: exporter.store.clone(),
        settings: settings.file.reuse,
        store_calls: Dependency::new(breakers.get_with(STORE, breaker)),
        completer: Arc::clone(&completer),
        progress: Mutex::default(),
    });
    gauges::register();
    let handler = Handler::new(move |item| Arc::clone(&exporter).handle(item))
        .policy(policy)
        .concurrency(concurrency)
        .batch_effect(|tx, files: Vec<Arc<InputFile>>| {
            Box::pin(async move {
                work::record(tx, &files).await?;
                postrider_crashpoint::point!("exports.recorded")?;
                Ok(())
            })
        })
        .on_dead(|item, failure| Some(fail_job(item, failure)))
        .on_settled(move |item, outcome| {
            if let (Outcome::Done, Ok(claimed)) = (outcome, item.read::<ClaimedInput>()) {
                completer.input_finished(claimed.job);
            }
        });
    let lease = settings.worker.lease.seconds;
    let options = WorkerOptions {
        lease,
        batch,
        // Prefetched inputs wait out their lease if the worker dies.
        prefetch: (concurrency / 2).max(1),
        rescue_every: lease.min(Duration::from_secs(1)),
        ..WorkerOptions::default()
    };
    Ok(Worker::new(pool, &EXPORT_JOB_INPUT)?
        .options(options)
        .before_claim(move || Arc::clone(&reuse).run())
        .handle_others(handler))
}

const fn batches(name: &'static str, max_batch: usize) -> BatcherOptions {
    BatcherOptions {
        max_batch,
        ..BatcherOptions::new(name)
    }
}

fn contexts(
    pool: &PgPool,
    settings: &Settings,
    max_batch: usize,
) -> Batcher<Claim, Option<InputContext>> {
    let reuse = settings.file.reuse;
    let options = batches("export input lookup", max_batch);
    Batcher::with_connection(pool.clone(), options, move |connection, claims| {
        Box::pin(async move { Ok(work::context(connection, reuse, claims).await?) })
    })
}

fn file_locks(pool: &PgPool, max_batch: usize) -> Batcher<Claim, bool> {
    let options = batches("export file lock", max_batch);
    Batcher::with_connection(pool.clone(), options, |connection, claims| {
        Box::pin(async move { Ok(work::lock_files(connection, claims).await?) })
    })
}

fn open_jobs(pool: &PgPool, max_batch: usize) -> Batcher<Uuid, bool> {
    let options = batches("export job lookup", max_batch);
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

fn existing_files(
    store: &Store,
    max_batch: usize,
) -> Batcher<Key, Result<bool, postrider_blob::Error>> {
    let store = store.clone();
    let options = batches("export file lookup", max_batch);
    Batcher::new(options, move |keys: &[Key]| {
        let (store, keys) = (store.clone(), keys.to_vec());
        Box::pin(async move { Ok(store.exist(keys).await) })
    })
}

struct Exporter {
    source: Source,
    store: Store,
    gzip: bool,
    policy: RetryPolicy,
    slots: Semaphore,
    store_calls: Dependency,
    source_calls: Dependency,
    contexts: Batcher<Claim, Option<InputContext>>,
    file_locks: Batcher<Claim, bool>,
    open_jobs: Batcher<Uuid, bool>,
    existing_files: Batcher<Key, Result<bool, postrider_blob::Error>>,
}

impl Exporter {
    async fn handle(self: Arc<Self>, item: Item) -> Result<Handled, BoxError> {
        let claimed: ClaimedInput = item.read()?;
        let (claim, input) = ((item.id, claimed.fence), Input::from(claimed.input));
        Ok(match self.find_or_generate(&item, claim, &input).await {
            Ok(file) => {
                gauges::input(if file.reused { "reused" } else { "generated" }, 1);
                Handled::from(Verdict::Done).with_value(file)
            }
            Err(error) => self.verdict(&item, &input, error).into(),
        })
    }

    async fn find_or_generate(
        &self,
        item: &Item,
        claim: Claim,
        input: &Input,
    ) -> Result<InputFile, FileError> {
        // Before waiting for a slot: many inputs are here at a time and share their statements.
        let context = self.context(claim).await?;
        if let Some(file) = self.existing(claim, &context).await? {
            return Ok(file);
        }
        if context.reusable {
            if !query(self.file_locks.call(claim)).await? {
                return Err(FileError::Snooze(LOCKED_DELAY));
            }
            // The previous holder of the lock may have generated the file.
            let now = self.context(claim).await?;
            if now.registered != context.registered
                && let Some(file) = self.existing(claim, &now).await?
            {
                return Ok(file);
            }
        }
        // An input whose worker was lost before runs alone and waits for no slot: until it is done no other such input is
        // claimed, and the next crash would find it waiting here.
        let _slot = if item.losses == 0 {
            self.slots.acquire().await.ok()
        } else {
            None
        };
        // The job may have been closed meanwhile.
        if !query(self.open_jobs.call(context.job_id)).await? {
            return Err(FileError::Snooze(NOT_OURS_DELAY));
        }
        let key = file::key(&context.job_key, input, self.gzip);
        self.generate(&key, input).await?;
        Ok(InputFile {
            claim,
            path: self.store.url(&key),
            reused: false,
        })
    }

    /// The claim's context, if its job is open.
    async fn context(&self, claim: Claim) -> Result<InputContext, FileError> {
        match query(self.contexts.call(claim)).await? {
            Some(context) if context.status.is_open() => Ok(context),
            Some(_) | None => Err(FileError::Snooze(NOT_OURS_DELAY)),
        }
    }

    /// The registered file for this key, if it may be used and still exists.
    async fn existing(
        &self,
        claim: Claim,
        context: &InputContext,
    ) -> Result<Option<InputFile>, FileError> {
        let Some(path) = context
            .registered
            .clone()
            .filter(|_| context.own || context.reusable)
        else {
            return Ok(None);
        };
        // `None`: the file is in a store that was configured earlier.
        let Some(key) = self.store.key_from_url(&path) else {
            return Ok(None);
        };
        let lookup = async {
            match self.existing_files.call(key.clone()).await {
                Ok(answer) => answer,
                Err(_) => Ok(self.store.head(&key).await?.is_some()),
            }
        };
        let exists = self.store_calls.call(lookup).await?;
        Ok(exists.then_some(InputFile {
            claim,
            path,
            reused: !context.own,
        }))
    }

    /// Generates the file: completely or not at all.
    async fn generate(&self, key: &Key, input: &Input) -> Result<(), FileError> {
        // One cheap call finds out whether the store is available again, before a whole file is read for it.
        if self.store_calls.is_suspect() {
            self.store_calls.call(self.store.head(key)).await?;
        }
        let (store, source) = (
            self.store_calls.enter().await?,
            self.source_calls.enter().await?,
        );
        postrider_crashpoint::point!("exports.before_file").map_err(injected)?;
        let rows = match self.source.rows(input).await {
            Ok(rows) => rows,
            Err(error) => return Err(source.failed(FileError::source(&error))),
        };
        let mut file = File::begin(&self.store, key, self.gzip);
        match rows.copy_to(&mut file).await {
            Ok(has_rows) if has_rows || self.source.allows_empty() => {}
            Ok(_) => {
                file.abort().await;
                source.succeeded();
                return Err(FileError::no_data());
            }
            Err(CopyError::Source(error)) => {
                file.abort().await;
                return Err(source.failed(FileError::source(&error)));
            }
            Err(CopyError::Store(error)) => {
                file.abort().await;
                return Err(store.failed(FileError::store(&error)));
            }
        }
        source.succeeded();
        postrider_crashpoint::point!("exports.before_finish").map_err(injected)?;
        if let Err(error) = file.finish().await {
            return Err(store.failed(FileError::store(&error)));
        }
        store.succeeded();
        postrider_crashpoint::point!("exports.after_file").map_err(injected)?;
        Ok(())
    }

    fn verdict(&self, item: &Item, input: &Input, error: FileError) -> Verdict {
        let (failure, outage) = match error {
            FileError::Snooze(delay) => return Verdict::Snooze(delay),
            FileError::Unavailable(failure) => (failure, true),
            FileError::Failed(failure) => (failure, false),
        };
        let attempts = u32::try_from(item.attempts).unwrap_or(0).saturating_add(1);
        tracing::warn!(
            index_key = input.index_key,
            effective_date = input.effective_date,
            asof_indicator = input.asof_indicator,
            attempts,
            error_code = failure.code(),
            error = failure.message(),
            "generating a file failed; it is retried unless attempts are exhausted"
        );
        if outage && self.policy.delay(attempts, 0.5).is_none() {
            return Verdict::Snooze(OUTAGE_DELAY);
        }
        Verdict::retry(failure)
    }
}

async fn query<T>(call: impl Future<Output = Result<T>>) -> Result<T, FileError> {
    call.await.map_err(|error| FileError::database(&error))
}

fn injected(error: postrider_crashpoint::Injected) -> FileError {
    FileError::Failed(Failure::from_error("INJECTED", &error))
}

/// A dead input fails its job, in the transaction that marks the input dead.
fn fail_job(item: &Item, failure: &Failure) -> Effect {
    gauges::input("dlq", 1);
    let claimed = item.read::<ClaimedInput>();
    let (code, message) = (failure.code().to_owned(), failure.message().to_owned());
    Box::new(move |tx| {
        Box::pin(async move {
            let claimed = claimed?;
            let reason = failure_reason(&claimed.input.into(), &code, &message);
            tracing::error!(job = %claimed.job, reason, "an input is in the DLQ; its job fails");
            if closing::fail(tx, claimed.job, &reason).await? {
                gauges::job("failed", 1);
            }
            Ok(())
        })
    })
}

/// The error message of a failed job.
pub(crate) fn failure_reason(input: &Input, code: &str, message: &str) -> String {
    let Input {
        index_key,
        effective_date,
        asof_indicator,
    } = input;
    format!("{index_key} {effective_date} {asof_indicator} moved to the DLQ: {code}: {message}")
}
