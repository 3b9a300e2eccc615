//! One service as a card: its current state and recent history.

use crate::{
    operate::overview::{Point, ServiceView},
    services,
};

use super::super::{
    chart::{Chart, Spark},
    format,
    history::Sample,
};

/// A service as a card.
pub(in super::super) struct Card {
    pub title: String,
    /// Its page, if it has one.
    pub link: String,
    pub name: String,
    pub done: String,
    pub done_spark: Spark,
    pub due: String,
    pub due_spark: Spark,
    pub oldest: String,
    pub oldest_spark: Spark,
    pub leased: String,
    pub later: String,
    pub parked: String,
    pub dead: String,
    pub has_dead: bool,
    /// Shares of what ended, in per cent: on the first attempt, after a retry, dead.
    pub first_width: f64,
    pub after_width: f64,
    pub dead_width: f64,
    pub first: String,
    pub eventually: String,
    pub ended: bool,
    pub chart: Chart,
}

impl Card {
    pub fn new(service: &ServiceView, past: &[Sample]) -> Self {
        let known = services::descriptions().find(|known| known.name == service.name);
        let success = &service.success;
        let ended = success.first_attempt + success.after_retry + success.dead;
        let hundredths = |of: i64| (share(of, ended).unwrap_or_default() * 1000.0).round() / 10.0;
        let due: Vec<f64> = past.iter().map(|seen| seen.due).collect();
        let ages: Vec<f64> = past.iter().map(|seen| seen.oldest).collect();
        let of = |what: fn(&Point) -> i64| values(&service.series, what);
        let done = of(|point| point.done);
        Self {
            title: known.map_or("Messages".to_owned(), |known| known.title.to_owned()),
            link: known.map_or(String::new(), |known| format!("/services/{}", known.name)),
            name: service.name.clone(),
            done: format::rate(service.done_per_minute),
            done_spark: Spark::of(&done, 1.0, "throughput over time"),
            due: format::amount(service.ready),
            due_spark: Spark::of(&due, 1.0, "due items over time"),
            oldest: service
                .oldest_seconds
                .map_or("none".to_owned(), format::span),
            oldest_spark: Spark::of(&ages, 1.0, "age of the oldest due item over time"),
            leased: format::amount(service.leased),
            later: format::amount(service.waiting),
            parked: format::amount(service.parked),
            dead: format::amount(service.dead),
            has_dead: service.dead.count > 0,
            first_width: hundredths(success.first_attempt),
            after_width: hundredths(success.after_retry),
            dead_width: hundredths(success.dead),
            first: percent(success.first_attempt, ended),
            eventually: percent(success.first_attempt + success.after_retry, ended),
            ended: ended > 0,
            chart: Chart::of(&done, &of(|p| p.retries), &of(|p| p.dead)),
        }
    }

    /// Its position: in the order of the navigation, messages last.
    pub fn position(&self) -> usize {
        services::descriptions()
            .position(|service| service.name == self.name)
            .unwrap_or(usize::MAX)
    }

    /// Its dead letters.
    pub fn dead_link(&self) -> String {
        format!(
            "/dead?filter={}",
            format::in_query(&format!("service:{}", self.name))
        )
    }

    /// Where the last part of the bar starts.
    pub fn dead_from(&self) -> f64 {
        self.first_width + self.after_width
    }
}

/// One value per completed interval.
fn values(series: &[Point], of: impl Fn(&Point) -> i64) -> Vec<f64> {
    let over = series.len().saturating_sub(1);
    #[expect(clippy::cast_precision_loss, reason = "a place on a chart")]
    series
        .iter()
        .take(over)
        .map(|point| of(point) as f64)
        .collect()
}

/// The sum over all services.
pub(super) fn sum(services: &[ServiceView], of: impl Fn(&Point) -> i64) -> Vec<f64> {
    let mut all: Vec<f64> = Vec::new();
    for service in services {
        let own = values(&service.series, &of);
        if all.is_empty() {
            all = own;
        } else {
            for (sum, value) in all.iter_mut().zip(own) {
                *sum += value;
            }
        }
    }
    all
}

/// The share of all that ended, per interval; an interval without any repeats the previous value.
pub(super) fn shares(services: &[ServiceView], of: impl Fn(&Point) -> i64) -> Vec<f64> {
    let part = sum(services, of);
    let ended = sum(services, |point| point.done + point.dead);
    let mut last = 1.0;
    part.into_iter()
        .zip(ended)
        .map(|(part, ended)| {
            if ended > 0.0 {
                last = part.max(0.0) / ended;
            }
            last
        })
        .collect()
}

fn share(part: i64, whole: i64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// In per cent, rounded down: 99.99 % is never shown as 100 %.
pub(in super::super) fn percent(part: i64, whole: i64) -> String {
    share(part, whole).map_or("–".to_owned(), |share| {
        let tenths = (share * 1000.0).floor() / 10.0;
        format!("{tenths} %")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_down() {
        assert_eq!(percent(99_999, 100_000), "99.9 %");
        assert_eq!(percent(5, 5), "100 %");
        assert_eq!(percent(0, 0), "–");
    }
}
