//! Renews leases, stops handlers that outlive them, and reports that the worker is alive.
//!
//! All on connections of their own: handlers that exhaust their pool can't starve a renewal.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::WorkerOptions;
use super::registry::Registry;
use crate::Result;
use crate::conn::{ConnGuard, with_timeout};
use crate::internal::catch_panic;
use crate::lease::Queue;

/// Maximum number of leases renewed per statement.
const RENEW_CHUNK: usize = 1_000;

/// How soon a key locked by an open transaction is retried.
const PROMOTE_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How often stranded keys are searched for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);

const UPSERT_WORKER: &str = "
insert into postrider.worker (id, name, work_table, kinds, ttl)
values ($1, $2, $3, $4, make_interval(secs => $5))
on conflict (id) do update set seen_at = now()";

const DELETE_STALE_WORKERS: &str =
    "delete from postrider.worker where seen_at < now() - ttl - interval '1 day'";

const DELETE_WORKER: &str = "delete from postrider.worker where id = $1";

pub(super) struct Heartbeat {
    pub queue: Queue,
    pub worker_pool: PgPool,
    pub registry: Arc<Registry>,
    pub options: WorkerOptions,
    pub worker: String,
    /// None means every kind.
    pub kinds: Option<Vec<String>>,
}

impl Heartbeat {
    /// Renews every lease after a third of its duration.
    pub async fn renew(&self) {
        let tick =
            (self.options.lease / 12).clamp(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            tokio::time::sleep(tick).await;
            let due = self.registry.older_than(self.options.renew_after());
            for keys in due.chunks(RENEW_CHUNK) {
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
                                "leases lost; stopping their handlers"
                            );
                        }
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "lease renewal failed; retrying");
                    }
                    Err(_) => tracing::warn!("lease renewal timed out; retrying"),
                }
            }
        }
    }

    async fn renew_once(&self, keys: &[(i64, i64)]) -> Result<std::collections::HashSet<i64>> {
        catch_panic("renewing", async {
            let mut held = ConnGuard::acquire(&self.worker_pool).await?;
            let kept = self
                .queue
                .renew_keys(&mut held, keys, self.options.lease)
                .await;
            held.finish(kept)
        })
        .await
    }

    /// Stops handlers whose lease is about to expire, by this machine's monotonic clock; needs no database.
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
                    "leases about to expire without renewal; stopped their handlers"
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
            if let Err(error) = self.beat(every * 4).await {
                tracing::debug!(%error, "heartbeat failed; retrying");
            }
            tokio::time::sleep(every).await;
        }
    }

    async fn beat(&self, ttl: Duration) -> Result<()> {
        let sign = sqlx::query(UPSERT_WORKER)
            .bind(&self.worker)
            .bind(&self.options.name)
            .bind(self.queue.table().name)
            .bind(&self.kinds)
            .bind(ttl.as_secs_f64());
        let mut held = ConnGuard::acquire(&self.worker_pool).await?;
        let alive = with_timeout(self.options.call_timeout(), async {
            sign.execute(&mut *held).await?;
            sqlx::query(DELETE_STALE_WORKERS)
                .execute(&mut *held)
                .await?;
            Ok(())
        })
        .await;
        held.finish(alive)
    }

    /// Removes the worker's row.
    pub async fn deregister(&self) {
        let leaving = with_timeout(self.options.call_timeout(), async {
            let gone = sqlx::query(DELETE_WORKER).bind(&self.worker);
            Ok(gone.execute(&self.worker_pool).await?)
        });
        if let Err(error) = leaving.await {
            tracing::debug!(%error, "could not deregister the worker; its row expires by itself");
        }
    }

    /// Promotes the next item of ordering keys whose promotion failed at settling.
    pub async fn promote(&self, mut busy: mpsc::UnboundedReceiver<Vec<String>>) {
        if self.queue.table().ordering.is_none() {
            return std::future::pending().await;
        }
        let mut keys: Vec<String> = Vec::new();
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tokio::select! {
                Some(more) = busy.recv() => keys.extend(more),
                () = tokio::time::sleep(PROMOTE_RETRY_INTERVAL), if !keys.is_empty() => {
                    match self.promote_once(&keys).await {
                        Ok(still_busy) => keys = still_busy,
                        Err(error) => tracing::debug!(%error, "could not promote ordering keys; retrying"),
                    }
                }
                _ = sweep.tick() => {
                    if let Err(error) = self.sweep().await {
                        tracing::debug!(%error, "could not sweep ordering keys; retrying");
                    }
                }
            }
        }
    }

    async fn promote_once(&self, keys: &[String]) -> Result<Vec<String>> {
        catch_panic("promoting", async {
            let mut held = ConnGuard::acquire(&self.worker_pool).await?;
            let busy = with_timeout(
                self.options.call_timeout(),
                self.queue.promote(&mut held, keys),
            )
            .await;
            held.finish(busy)
        })
        .await
    }

    async fn sweep(&self) -> Result<()> {
        catch_panic("promoting", async {
            let mut held = ConnGuard::acquire(&self.worker_pool).await?;
            with_timeout(
                self.options.call_timeout(),
                self.queue.promote_stranded(&mut held),
            )
            .await?;
            held.release();
            Ok(())
        })
        .await
    }
}
