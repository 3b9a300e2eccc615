//! The fast path: inputs whose file exists are finished before they are claimed, hundreds per statement.
//!
//! Nothing is generated for them, so they need no lease. The statement skips inputs that were claimed meanwhile and those
//! of closed jobs. A crash leaves them as they were. Anything that isn't finished here, because its file is gone or the
//! store doesn't respond, is claimed as usual.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{Stream, TryStreamExt, stream};
use postrider::Result;
use postrider_blob::Store;
use sqlx::PgPool;
use tokio::time::Instant;

use super::{Completer, Dependency};
use crate::{
    error::FileError,
    gauges,
    settings::ReuseSettings,
    store::fast_path::{self, Reusable, ScanCursor},
};

/// Inputs per scan.
const SCAN_SIZE: u32 = 1_000;

/// Maximum concurrent batches: while one is written, the files of the next are looked up.
const MAX_CONCURRENT: usize = 2;

/// Maximum duration of one run: a slow store must not keep other inputs from being claimed.
const MAX_RUN: Duration = Duration::from_secs(1);

/// How often the scan restarts at the front of the queue, to find inputs that committed late and precede scanned ones.
/// Everything else that was scanned once is left to the claims.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Reuse {
    pub pool: PgPool,
    pub store: Store,
    pub settings: ReuseSettings,
    pub store_calls: Dependency,
    pub completer: Arc<Completer>,
    pub progress: Mutex<ScanProgress>,
}

/// How far the scan has come.
#[derive(Debug, Default)]
pub(crate) struct ScanProgress {
    reached: ScanCursor,
    restarted_at: Option<Instant>,
}

impl ScanProgress {
    fn next(&mut self) -> ScanCursor {
        let recently = |at: Instant| at.elapsed() < RESTART_INTERVAL;
        if self.restarted_at.is_some_and(recently) {
            return self.reached;
        }
        self.restarted_at = Some(Instant::now());
        ScanCursor::default()
    }
}

impl Reuse {
    /// Finishes what it can of the inputs that would be claimed next; returns their number.
    pub async fn run(self: Arc<Self>) -> Result<u64> {
        if !self.settings.enabled {
            return Ok(0);
        }
        let finished = AtomicU64::new(0);
        self.candidates()
            .try_for_each_concurrent(MAX_CONCURRENT, async |inputs| {
                let count = self.finish(inputs).await?;
                finished.fetch_add(count, Ordering::Relaxed);
                Ok(())
            })
            .await?;
        Ok(finished.into_inner())
    }

    /// Inputs with a registered file in claim order, while there are any and the store is available.
    fn candidates(&self) -> impl Stream<Item = Result<Vec<Reusable>>> + '_ {
        let until = Instant::now() + MAX_RUN;
        let from = self.progress().next();
        stream::try_unfold(Some(from), move |from| async move {
            let over = Instant::now() >= until || self.store_calls.is_suspect();
            let Some(from) = from.filter(|_| !over) else {
                return Ok(None);
            };
            let scan = fast_path::scan(&self.pool, self.settings, from, SCAN_SIZE).await?;
            let mut progress = self.progress();
            progress.reached = progress.reached.max(scan.reached);
            let next = scan.more.then_some(scan.reached);
            Ok((!scan.inputs.is_empty()).then_some((scan.inputs, next)))
        })
    }

    fn progress(&self) -> MutexGuard<'_, ScanProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn finish(&self, mut inputs: Vec<Reusable>) -> Result<u64> {
        let mut exists = self.files_exist(&inputs).await.into_iter();
        inputs.retain(|_| exists.next().unwrap_or(false));
        if inputs.is_empty() {
            return Ok(0);
        }
        postrider_crashpoint::point!("exports.before_reuse")?;
        let finished = fast_path::finish(&self.pool, &inputs).await?;
        gauges::input("reused", finished);
        inputs.dedup_by_key(|input| input.job);
        for input in inputs {
            self.completer.input_finished(input.job);
        }
        Ok(finished)
    }

    /// Whether each input's file exists, in their order; empty if the store doesn't respond.
    async fn files_exist(&self, inputs: &[Reusable]) -> Vec<bool> {
        // `None`: the file is in a store that was configured earlier.
        let keys: Vec<_> = inputs
            .iter()
            .map(|input| self.store.key_from_url(&input.path))
            .collect();
        let Ok(call) = self.store_calls.enter().await else {
            return Vec::new();
        };
        let reachable = keys.iter().flatten().cloned().collect();
        let mut found = Vec::with_capacity(keys.len());
        for answer in self.store.exist(reachable).await {
            match answer {
                Ok(present) => found.push(present),
                Err(error) => {
                    call.failed(FileError::store(&error));
                    return Vec::new();
                }
            }
        }
        call.succeeded();
        let mut found = found.into_iter();
        keys.iter()
            .map(|key| key.is_some() && found.next().unwrap_or(false))
            .collect()
    }
}
