//! Judges at intervals, one process at a time, and records what changed.

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
    judge::{Step, holding, step},
    store, webhook,
};
use crate::observe::Gauges;

/// Why a look came to nothing. The record stays as it was: not knowing is neither better nor worse.
#[derive(Debug, thiserror::Error)]
enum Unjudged {
    #[error("the readings can't be taken: {0}")]
    Gauges(sqlx::Error),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Judges until the stop.
pub(crate) async fn evaluate(
    pool: PgPool,
    gauges: Gauges,
    settings: Settings,
    stop: CancellationToken,
) -> Result<(), Error> {
    let waker = Waker::new(pool.clone());
    let periodic = Periodic::new("alerts", settings.every);
    let tell = settings.url.is_some();
    run_periodic(pool.clone(), periodic, stop, |tick| {
        let (pool, gauges, waker) = (pool.clone(), gauges.clone(), waker.clone());
        async move {
            if look(&pool, &gauges, &tick, tell).await? {
                waker.wake(&OUTBOX);
            }
            Ok::<(), Unjudged>(())
        }
    })
    .await
}

/// One look; says whether somebody is to be told.
async fn look(pool: &PgPool, gauges: &Gauges, tick: &Tick, tell: bool) -> Result<bool, Unjudged> {
    let readings = gauges.take().await.map_err(Unjudged::Gauges)?;
    let mut tx = pool.begin().await?;
    tick.fence(&mut tx).await?;
    let now = store::now(&mut tx).await?;
    let open = store::open(&mut tx).await?;
    let steps = step(&open, holding(RULES, &readings, now), now);
    let announced = record(&mut tx, steps, now).await?;
    if tell {
        for id in &announced {
            let alert = store::one(&mut tx, *id).await?;
            webhook::announce(&mut tx, &alert).await?;
        }
    }
    store::sweep(&mut tx).await?;
    tx.commit().await?;
    Ok(tell && !announced.is_empty())
}

/// Writes what changed; those that began to fire or are over are announced.
async fn record(
    tx: &mut PgConnection,
    steps: Vec<Step<'_>>,
    now: OffsetDateTime,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut announced = Vec::new();
    let (mut kept, mut values, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Keep { id, value } => {
                kept.push(id);
                values.push(value);
            }
            Step::Forget { id } => forgotten.push(id),
            Step::Begin {
                rule,
                subject,
                value,
                fires,
            } => {
                let begun = store::begin(tx, rule, &subject, value, now, fires).await?;
                if fires && let Some(id) = begun {
                    tracing::warn!(alert = rule.name, subject, value, "an alert fires");
                    announced.push(id);
                }
            }
            Step::Fire {
                id,
                rule,
                subject,
                value,
            } => {
                if store::fire(tx, id, now, value).await? {
                    tracing::warn!(alert = rule.name, subject, value, "an alert fires");
                    announced.push(id);
                }
            }
            Step::Resolve { id } => {
                if store::resolve(tx, id, now).await? {
                    tracing::info!(alert = %id, "an alert is over");
                    announced.push(id);
                }
            }
        }
    }
    if !kept.is_empty() {
        store::keep(tx, &kept, &values).await?;
    }
    if !forgotten.is_empty() {
        store::forget(tx, &forgotten).await?;
    }
    Ok(announced)
}
