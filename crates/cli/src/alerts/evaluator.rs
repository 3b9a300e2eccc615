//! Evaluates the rules periodically, in one process at a time, and records what changed.

use postrider::{
    Error,
    leader::{FenceError, Periodic, Tick, run_periodic},
    outbox::OUTBOX,
    wake::Waker,
};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    RULES, Settings,
    evaluation::{Transition, breaches, transitions},
    store, webhook,
};
use crate::observe::Gauges;

/// Why an evaluation failed. The recorded alerts stay unchanged.
#[derive(Debug, thiserror::Error)]
enum EvaluationError {
    #[error("the gauges can't be read: {0}")]
    Gauges(sqlx::Error),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Evaluates until the stop.
pub(crate) async fn evaluate(
    pool: PgPool,
    gauges: Gauges,
    settings: Settings,
    stop: CancellationToken,
) -> Result<(), Error> {
    let waker = Waker::new(pool.clone());
    let periodic = Periodic::new("alerts", settings.every);
    let announce = settings.url.is_some();
    run_periodic(pool.clone(), periodic, stop, |tick| {
        let (pool, gauges, waker) = (pool.clone(), gauges.clone(), waker.clone());
        async move {
            if evaluate_once(&pool, &gauges, &tick, announce).await? {
                waker.wake(&OUTBOX);
            }
            Ok::<(), EvaluationError>(())
        }
    })
    .await
}

/// One evaluation; returns whether announcements were enqueued.
async fn evaluate_once(
    pool: &PgPool,
    gauges: &Gauges,
    tick: &Tick,
    announce: bool,
) -> Result<bool, EvaluationError> {
    let gauges = gauges.read().await.map_err(EvaluationError::Gauges)?;
    let mut tx = pool.begin().await?;
    tick.fence(&mut tx).await?;
    let now = store::now(&mut tx).await?;
    let open = store::open(&mut tx).await?;
    let changes = transitions(&open, breaches(RULES, &gauges, now), now);
    let announced = record(&mut tx, changes, now).await?;
    if announce {
        for id in &announced {
            let alert = store::one(&mut tx, *id).await?;
            webhook::announce(&mut tx, &alert).await?;
        }
    }
    store::delete_old(&mut tx).await?;
    tx.commit().await?;
    Ok(announce && !announced.is_empty())
}

/// Records the changes; returns the alerts to announce: those that fired or were resolved.
async fn record(
    tx: &mut PgConnection,
    changes: Vec<Transition<'_>>,
    now: OffsetDateTime,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut announced = Vec::new();
    let (mut updated, mut values, mut discarded) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        match change {
            Transition::Update { id, value } => {
                updated.push(id);
                values.push(value);
            }
            Transition::Discard { id } => discarded.push(id),
            Transition::Open {
                rule,
                subject,
                value,
                fires,
            } => {
                let opened = store::insert(tx, rule, &subject, value, now, fires).await?;
                if fires && let Some(id) = opened {
                    tracing::warn!(alert = rule.name, subject, value, "alert fires");
                    announced.push(id);
                }
            }
            Transition::Fire {
                id,
                rule,
                subject,
                value,
            } => {
                if store::fire(tx, id, now, value).await? {
                    tracing::warn!(alert = rule.name, subject, value, "alert fires");
                    announced.push(id);
                }
            }
            Transition::Resolve { id } => {
                if store::resolve(tx, id, now).await? {
                    tracing::info!(alert = %id, "alert resolved");
                    announced.push(id);
                }
            }
        }
    }
    if !updated.is_empty() {
        store::update(tx, &updated, &values).await?;
    }
    if !discarded.is_empty() {
        store::discard(tx, &discarded).await?;
    }
    Ok(announced)
}
