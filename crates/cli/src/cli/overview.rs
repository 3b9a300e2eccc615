//! The overview as text, for `status` and `top`.

use super::{Output, output::Tone};
use crate::operate::overview::{Overview, Point, ServiceView};

/// Heights of a bar, from nothing to full.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Number of points in a line of bars.
const WIDTH: usize = 30;

/// One line per service, and the state of workers, leaders and breakers.
pub(super) fn text(overview: &Overview, output: &Output) -> String {
    let mut lines = vec![output.paint(
        Tone::Dim,
        &format!(
            "{:<10} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9} {:>6} {:>6}  last five minutes",
            "service",
            "ready",
            "leased",
            "waiting",
            "parked",
            "dead",
            "oldest",
            "done/min",
            "first",
            "ok"
        ),
    )];
    lines.extend(
        overview
            .services
            .iter()
            .map(|service| line(service, output)),
    );
    lines.extend(fleet(overview, output));
    lines.join("\n")
}

fn line(service: &ServiceView, output: &Output) -> String {
    let dead = format!("{:>7}", service.dead);
    let dead = if service.dead.count > 0 {
        output.paint(Tone::Bad, &dead)
    } else {
        dead
    };
    let oldest = service.oldest_seconds.map_or_else(|| "-".to_owned(), age);
    let percent = |rate: Option<f64>| {
        rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.0}%", rate * 100.0))
    };
    format!(
        "{:<10} {:>7} {:>7} {:>7} {:>7} {dead} {oldest:>7} {:>9} {:>6} {:>6}  {}",
        service.name,
        service.ready,
        service.leased,
        service.waiting,
        service.parked,
        rate(service.done_per_minute),
        percent(service.success.first_attempt_rate),
        percent(service.success.rate),
        output.paint(Tone::Good, &bars(&service.series)),
    )
}

fn fleet(overview: &Overview, output: &Output) -> Vec<String> {
    let alive = overview
        .workers
        .iter()
        .filter(|worker| worker.alive)
        .count();
    let leading = overview.leaders.iter().filter(|leader| leader.live).count();
    let mut lines = vec![format!(
        "workers: {alive} alive, {} silent; leaders: {leading} of {}",
        overview.workers.len() - alive,
        overview.leaders.len()
    )];
    for breaker in overview
        .breakers
        .iter()
        .filter(|breaker| breaker.state != "closed")
    {
        let word = format!("breaker {} is {}", breaker.dependency, breaker.state);
        lines.push(output.paint(Tone::Bad, &word));
    }
    lines
}

/// The latest points of a series, as bars.
fn bars(series: &[Point]) -> String {
    let latest = &series[series.len().saturating_sub(WIDTH)..];
    let most = latest
        .iter()
        .map(|point| point.done)
        .max()
        .unwrap_or(0)
        .max(1);
    latest
        .iter()
        .map(|point| {
            let height = usize::try_from(point.done * 7 / most).unwrap_or(0);
            if point.done == 0 {
                ' '
            } else {
                BARS.get(height).copied().unwrap_or('█')
            }
        })
        .collect()
}

/// A rate for people: one decimal below ten.
fn rate(per_minute: f64) -> String {
    if per_minute < 10.0 && per_minute.fract() > 0.0 {
        format!("{per_minute:.1}")
    } else {
        format!("{per_minute:.0}")
    }
}

/// Seconds in the largest unit that fits.
fn age(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7_200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3_600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_the_latest_points_in_proportion() {
        let point = |done| Point {
            at: 0,
            done,
            done_after_retry: 0,
            retries: 0,
            dead: 0,
        };
        let mut series = vec![point(1_000); 100];
        series.extend([point(0), point(1), point(7)]);
        let bars: Vec<char> = bars(&series[100..]).chars().collect();
        assert_eq!(bars, [' ', '▂', '█']);
        assert_eq!(super::bars(&series).chars().count(), WIDTH);
        assert_eq!(super::bars(&[]), "");
    }

    #[test]
    fn an_age_is_short() {
        assert_eq!(
            [age(0.0), age(61.0), age(3_600.0), age(86_400.0 * 3.0)],
            ["0s", "61s", "60m", "3d"]
        );
    }
}
