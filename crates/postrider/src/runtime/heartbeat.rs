//! Keeps leases alive, stops what outlives them, and tells the world that the worker lives.
//!
//! All on connections of their own: a pool that handlers have used up can't starve a renewal.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::WorkerOptions;
use super::registry::Registry;
use crate::Result;
use crate::catch_panic::catch_panic;
use crate::conn::{ConnGuard, with_timeout};
use crate::lease::Queue;

/// Leases renewed per statement.
const CHUNK: usize = 1_000;

/// A key whose lock an open transaction holds is tried again after this long.
const PROMOTE_AGAIN: Duration = Duration::from_millis(100);

/// How often keys without a head are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(15);

const ALIVE: &str = "
insert into postrider.worker (id, name, work_table, kinds, ttl)
values ($1, $2, $3, $4, make_interval(secs => $5))
on conflict (id) do update set seen_at = now()";

const FORGET_THE_LONG_DEAD: &str =
    "delete from postrider.worker where seen_at < now() - ttl - interval '1 day'";

const GONE: &str = "delete from postrider.worker where id = $1";

pub(super) struct Heartbeat {
    pub queue: Queue,
    pub side: PgPool,
    pub registry: Arc<Registry>,
    pub options: WorkerOptions,
    pub worker: String,
    /// None: every kind.
    pub kinds: Option<Vec<String>>,
}

impl Heartbeat {
    /// Renews every lease that is a third used up.
    pub async fn renew(&self) {
        let tick =
            (self.options.lease / 12).clamp(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            tokio::time::sleep(tick).await;
            let due = self.registry.older_than(self.options.renew_after());
            for keys in due.chunks(CHUNK) {
                let sent = Instant::now();
                let renewal =
                    tokio::time::timeout(self.options.renew_after(), self.renew_once(keys));
                match renewal.await {
                    Ok(Ok(kept)) => {
                        let lost = self.registry.renewed(keys, &kept, sent);
                        if lost > 0 {
                            tracing::warn!(
                                table = self.queue.table().name,
                                lost,
                                "leases were lost; their handlers stop"
                            );
                        }
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "leases could not be renewed; trying again");
                    }
                    Err(_) => tracing::warn!("leases could not be renewed in time; trying again"),
                }
            }
        }
    }

    async fn renew_once(&self, keys: &[(i64, i64)]) -> Result<std::collections::HashSet<i64>> {
        catch_panic("renewing", async {
            let mut held = ConnGuard::acquire(&self.side).await?;
            let kept = self
                .queue
                .renew_keys(&mut held, keys, self.options.lease)
                .await;
            held.finish(kept)
        })
        .await
    }

    /// Stops handlers whose lease is about to run out, by this machine's steady clock; needs no database.
    pub async fn watch(&self) {
        let tick =
            (self.options.lease / 50).clamp(Duration::from_millis(5), Duration::from_millis(250));
        let limit = self.options.lease.saturating_sub(self.options.margin());
        loop {
            tokio::time::sleep(tick).await;
            let stopped = self.registry.expire(limit);
            if stopped > 0 {
                tracing::warn!(
                    table = self.queue.table().name,
                    stopped,
                    "handlers stopped: their leases are running out"
                );
            }
            metrics::gauge!("postrider_leases_held", "table" => self.queue.table().name)
                .set(self.registry.len() as f64);
        }
    }

    /// Keeps the worker's row in `postrider.worker` fresh.
    pub async fn heartbeat(&self) {
        let every =
            (self.options.lease / 3).clamp(Duration::from_millis(500), Duration::from_secs(10));
        loop {
            if let Err(error) = self.alive(every * 4).await {
                tracing::debug!(%error, "no sign of life could be given");
            }
            tokio::time::sleep(every).await;
        }
    }

    async fn alive(&self, ttl: Duration) -> Result<()> {
        let sign = sqlx::query(ALIVE)
            .bind(&self.worker)
            .bind(&self.options.name)
            .bind(self.queue.table().name)
            .bind(&self.kinds)
            .bind(ttl.as_secs_f64());
        let mut held = ConnGuard::acquire(&self.side).await?;
        let alive = with_timeout(self.options.patience(), async {
            sign.execute(&mut *held).await?;
            sqlx::query(FORGET_THE_LONG_DEAD)
                .execute(&mut *held)
                .await?;
            Ok(())
        })
        .await;
        held.finish(alive)
    }

    /// Takes the worker off the list.
    pub async fn sign_off(&self) {
        let leaving = with_timeout(self.options.patience(), async {
            let gone = sqlx::query(GONE).bind(&self.worker);
            Ok(gone.execute(&self.side).await?)
        });
        if let Err(error) = leaving.await {
            tracing::debug!(%error, "the worker stays on the list until it is forgotten");
        }
    }

    /// Sees to ordering keys whose next item could not be made due with the settling.
    pub async fn promote(&self, mut busy: mpsc::UnboundedReceiver<Vec<String>>) {
        if self.queue.table().ordering.is_none() {
            return std::future::pending().await;
        }
        let mut keys: Vec<String> = Vec::new();
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        loop {
            tokio::select! {
                Some(more) = busy.recv() => keys.extend(more),
                () = tokio::time::sleep(PROMOTE_AGAIN), if !keys.is_empty() => {
                    match self.promote_once(&keys).await {
                        Ok(still_busy) => keys = still_busy,
                        Err(error) => tracing::debug!(%error, "ordering keys wait to be promoted"),
                    }
                }
                _ = sweep.tick() => {
                    if let Err(error) = self.sweep().await {
                        tracing::debug!(%error, "ordering keys were not swept");
                    }
                }
            }
        }
    }

    async fn promote_once(&self, keys: &[String]) -> Result<Vec<String>> {
        catch_panic("promoting", async {
            let mut held = ConnGuard::acquire(&self.side).await?;
            let busy =
                with_timeout(self.options.patience(), self.queue.promote(&mut held, keys)).await;
            held.finish(busy)
        })
        .await
    }

    async fn sweep(&self) -> Result<()> {
        catch_panic("promoting", async {
            let mut held = ConnGuard::acquire(&self.side).await?;
            with_timeout(
                self.options.patience(),
                self.queue.promote_stranded(&mut held),
            )
            .await?;
            held.release();
            Ok(())
        })
        .await
    }
}
