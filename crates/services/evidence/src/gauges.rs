//! What the gauges and the alerts look at, read from the database: the same whoever reads, and whoever did the work.

use postrider_inspect::gauges::{Gauge, gauge_value};
use sqlx::PgPool;

use crate::{counters, store::health};

/// Everything, as of now. A share of nothing is left out.
pub async fn readings(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let rates = health::rates(pool).await?;
    let (rows, artifacts) = health::depth(pool).await?;
    let n2 = health::n2(pool).await?;
    let depth = |unit, count| Gauge::labeled(counters::DEPTH, "unit", unit, gauge_value(count));
    let shares = [
        (counters::FIRST_RATE, rates.first_attached, rates.first),
        (counters::RETRY_RATE, rates.retries_attached, rates.retries),
    ];
    let mut found: Vec<Gauge> = shares
        .into_iter()
        .filter_map(|(name, part, whole)| Some(Gauge::new(name, share(part, whole)?)))
        .collect();
    let permanent = share(rates.permanent, rates.first.max(rates.permanent)).unwrap_or(0.0);
    found.extend([
        depth("rows", rows),
        depth("artifacts", artifacts),
        Gauge::new(counters::PERMANENT_SHARE, permanent),
        Gauge::new(counters::N2_AVERAGE, n2.average),
        Gauge::new(counters::N2_FORCED_LATELY, gauge_value(n2.forced)),
        Gauge::new(counters::LAST_RUN, health::last_run(pool).await?),
    ]);
    Ok(found)
}

fn share(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| gauge_value(part) / gauge_value(whole))
}
