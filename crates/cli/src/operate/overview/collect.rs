//! Queries the database and assembles the overview.

use postrider::{Result, breaker, leader};
use postrider_inspect::queue_stats::{self, BUCKET_SECONDS, Depth, QueueStats};
use sqlx::PgPool;
use time::OffsetDateTime;

use super::{
    Amount, CacheState, Overview, Point, SETTLED_SECONDS, ServiceView, Success, TableView, Tallies,
    WINDOW_SECONDS,
};
use crate::services;

const NOW: &str = "select clock_timestamp()";

pub(super) async fn collect(
    stats: &QueueStats,
    pool: &PgPool,
    state: &mut CacheState,
) -> Result<Overview> {
    let mut connection = pool.acquire().await?;
    let now: OffsetDateTime = sqlx::query_scalar(NOW).fetch_one(&mut *connection).await?;
    let breakers = breaker::all(&mut connection).await?;
    let leaders = leader::all(&mut connection).await?;
    drop(connection);
    let workers = queue_stats::workers(pool).await?;
    let depths = stats.depths(pool).await?;
    count(stats, pool, state, now).await?;
    let window = Window {
        first: step(now.unix_timestamp() - WINDOW_SECONDS) + BUCKET_SECONDS,
        last: step(now.unix_timestamp()),
        now: now.unix_timestamp(),
        tallies: &state.tallies,
    };
    let services = services::named_tables()
        .map(|(name, tables)| service(name, &tables, &depths, &window))
        .collect();
    Ok(Overview {
        at: now,
        window_seconds: WINDOW_SECONDS,
        step_seconds: BUCKET_SECONDS,
        services,
        breakers: super::BreakerView::all(&breakers),
        leaders: leaders.into_iter().map(Into::into).collect(),
        workers: workers.into_iter().map(Into::into).collect(),
    })
}

const fn step(second: i64) -> i64 {
    second - second.rem_euclid(BUCKET_SECONDS)
}

/// Updates the counts; only intervals that may still change are counted again.
async fn count(
    stats: &QueueStats,
    pool: &PgPool,
    state: &mut CacheState,
    now: OffsetDateTime,
) -> Result<()> {
    let now = now.unix_timestamp();
    let oldest = step(now - WINDOW_SECONDS);
    let from = state.counted.max(oldest);
    let since = OffsetDateTime::from_unix_timestamp(from).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let outcomes = stats.throughput(pool, since).await?;
    state
        .tallies
        .retain(|(begins, _, _), _| (oldest..from).contains(begins));
    for bucket in outcomes {
        let key = (bucket.starts_at, bucket.work_table, bucket.outcome);
        *state.tallies.entry(key).or_default() += bucket.count;
    }
    state.counted = step(now - SETTLED_SECONDS);
    Ok(())
}

struct Window<'a> {
    first: i64,
    last: i64,
    now: i64,
    tallies: &'a Tallies,
}

impl Window<'_> {
    fn points(&self, table: &str) -> Vec<Point> {
        let mut points: Vec<Point> = (0..=(self.last - self.first) / BUCKET_SECONDS)
            .map(|n| Point::at(self.first + n * BUCKET_SECONDS))
            .collect();
        for ((begins, of, what), count) in self
            .tallies
            .range((self.first, String::new(), String::new())..)
        {
            if of != table {
                continue;
            }
            let index =
                usize::try_from((begins - self.first) / BUCKET_SECONDS).unwrap_or(usize::MAX);
            if let Some(point) = points.get_mut(index) {
                point.add(what, *count);
            }
        }
        points
    }

    /// Throughput of about the last minute, per minute.
    fn per_minute(&self, points: &[Point]) -> f64 {
        let from = step(self.now - 60);
        let done: i64 = points.iter().filter(|p| p.at >= from).map(|p| p.done).sum();
        let seconds = (self.now - from).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = done as f64 * 60.0 / seconds as f64;
        (rate * 10.0).round() / 10.0
    }
}

fn service(
    name: &'static str,
    tables: &[&'static str],
    depths: &[Depth],
    window: &Window<'_>,
) -> ServiceView {
    let mut series: Vec<Point> = Vec::new();
    let mut views = Vec::new();
    for table in tables {
        let points = window.points(table);
        let depth = depths.iter().find(|depth| depth.work_table == *table);
        views.push(view(table, depth, window.per_minute(&points)));
        if series.is_empty() {
            series = points;
        } else {
            for (sum, point) in series.iter_mut().zip(points) {
                sum.join(point);
            }
        }
    }
    let total =
        |of: fn(&TableView) -> Amount| views.iter().map(of).fold(Amount::default(), Amount::plus);
    let oldest = views
        .iter()
        .filter_map(|table| table.oldest_seconds)
        .reduce(f64::max);
    ServiceView {
        name: name.to_owned(),
        ready: total(|table| table.ready),
        leased: total(|table| table.leased),
        waiting: total(|table| table.waiting),
        parked: total(|table| table.parked),
        dead: total(|table| table.dead),
        oldest_seconds: oldest,
        done_per_minute: views.iter().map(|table| table.done_per_minute).sum(),
        success: Success::over(&series),
        tables: views,
        series,
    }
}

fn view(name: &str, depth: Option<&Depth>, done_per_minute: f64) -> TableView {
    let amount = |of: fn(&Depth) -> i64| depth.map(of).map(Amount::counted).unwrap_or_default();
    TableView {
        name: name.to_owned(),
        ready: amount(|depth| depth.ready),
        leased: amount(|depth| depth.leased),
        waiting: amount(|depth| depth.later),
        parked: amount(|depth| depth.parked),
        dead: amount(|depth| depth.dead),
        oldest_seconds: depth.and_then(|depth| depth.oldest_seconds),
        done_per_minute,
    }
}
