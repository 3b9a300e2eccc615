//! Inputs whose file is there already are finished ahead of the claims, hundreds in a statement.
//!
//! Nothing is made for them, so that nothing could be made twice: they need no lease. The statement leaves alone what
//! somebody has claimed meanwhile and what belongs to a job that was closed. A crash leaves them as they were, and
//! whatever is not finished here (a file that is gone, a store that does not answer) is claimed as ever.

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

use crate::{
    completion::Completer,
    counters,
    dependency::Dependency,
    settings::ReuseSettings,
    store::fast_path::{self, Known, Place},
    trouble::Trouble,
};

/// So many inputs are looked at in one go.
const LOOKED_AT: u32 = 1_000;

/// While some are written, others are read and their files looked for.
const AT_ONCE: usize = 2;

/// Then others get their turn at being claimed: a store may take its time to tell what it has.
const TURN: Duration = Duration::from_secs(1);

/// What was looked at once is left to the claims. Only so often the look begins at the front again: for inputs whose
/// request took long to commit, and came in before others that were seen.
const FROM_THE_FRONT: Duration = Duration::from_secs(1);

pub(crate) struct Reuse {
    pub pool: PgPool,
    pub store: Store,
    pub settings: ReuseSettings,
    pub to_store: Dependency,
    pub completer: Arc<Completer>,
    pub progress: Mutex<Progress>,
}

/// How far the look has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    reached: Place,
    from_the_front: Option<Instant>,
}

impl Progress {
    /// Where to look next.
    fn next(&mut self) -> Place {
        let recently = |at: Instant| at.elapsed() < FROM_THE_FRONT;
        if self.from_the_front.is_some_and(recently) {
            return self.reached;
        }
        self.from_the_front = Some(Instant::now());
        Place::default()
    }
}

impl Reuse {
    /// Finishes what it can of the inputs that would be claimed next; says how many.
    pub async fn ahead(self: Arc<Self>) -> Result<u64> {
        if !self.settings.enabled {
            return Ok(0);
        }
        let finished = AtomicU64::new(0);
        self.candidates()
            .try_for_each_concurrent(AT_ONCE, async |known| {
                let count = self.finish(known).await?;
                finished.fetch_add(count, Ordering::Relaxed);
                Ok(())
            })
            .await?;
        Ok(finished.into_inner())
    }

    /// Inputs with a known file, from the front of the queue on, for as long as there are any and the store is there.
    fn candidates(&self) -> impl Stream<Item = Result<Vec<Known>>> + '_ {
        let until = Instant::now() + TURN;
        let from = self.progress().next();
        stream::try_unfold(Some(from), move |from| async move {
            let over = Instant::now() >= until || self.to_store.is_suspect();
            let Some(from) = from.filter(|_| !over) else {
                return Ok(None);
            };
            let looked = fast_path::look(&self.pool, self.settings, from, LOOKED_AT).await?;
            let mut progress = self.progress();
            progress.reached = progress.reached.max(looked.reached);
            let next = looked.more.then_some(looked.reached);
            Ok((!looked.known.is_empty()).then_some((looked.known, next)))
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn finish(&self, mut known: Vec<Known>) -> Result<u64> {
        let there = self.there(&known).await;
        let mut there = there.into_iter();
        known.retain(|_| there.next().unwrap_or(false));
        if known.is_empty() {
            return Ok(0);
        }
        postrider_crashpoint::point!("exports.before_reuse")?;
        let finished = fast_path::finish(&self.pool, &known).await?;
        counters::input("reused", finished);
        known.dedup_by_key(|known| known.job);
        for known in known {
            self.completer.touched(known.job);
        }
        Ok(finished)
    }

    /// Whose file is there, in their order. Nobody's, if the store does not tell.
    async fn there(&self, known: &[Known]) -> Vec<bool> {
        // Files of another store than today's are out of our reach.
        let keys: Vec<_> = known.iter().map(|k| self.store.key_of(&k.path)).collect();
        let Ok(visit) = self.to_store.enter().await else {
            return Vec::new();
        };
        let reachable = keys.iter().flatten().cloned().collect();
        let mut looked = Vec::with_capacity(keys.len());
        for answer in self.store.present(reachable).await {
            match answer {
                Ok(present) => looked.push(present),
                Err(error) => {
                    visit.left(Trouble::store(&error));
                    return Vec::new();
                }
            }
        }
        visit.answered();
        let mut looked = looked.into_iter();
        keys.iter()
            .map(|key| key.is_some() && looked.next().unwrap_or(false))
            .collect()
    }
}
