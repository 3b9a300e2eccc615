//! `/`: the overview.

mod card;

use askama::Template;
use axum::{extract::State, response::Response};
use postrider_web::Problem;

use super::{
    Console,
    chart::Spark,
    format::{self, When},
    history::Sample,
    page::{Frame, answer},
    user::User,
};
use crate::operate::overview::{
    Amount, BreakerView, LeaderView, Overview, ServiceView, WorkerView,
};

pub(super) use card::{Card, percent};

/// A number with its name, its history and a link.
struct Tile {
    name: &'static str,
    value: String,
    unit: &'static str,
    more: String,
    class: &'static str,
    link: &'static str,
    spark: Spark,
}

struct Breaker {
    name: String,
    class: &'static str,
    state: &'static str,
    failures: String,
    since: When,
}

struct Leader {
    name: String,
    live: bool,
    term: i64,
    heartbeat: When,
    ran: Option<When>,
}

struct Worker {
    id: String,
    name: String,
    table: String,
    kinds: String,
    alive: bool,
    since: When,
    seen: When,
}

#[derive(Template)]
#[template(path = "console/overview.html")]
struct Page {
    frame: Frame,
    alerts: Vec<String>,
    tiles: Vec<Tile>,
    cards: Vec<Card>,
    breakers: Vec<Breaker>,
    leaders: Vec<Leader>,
    workers: Vec<Worker>,
    minutes: i64,
}

/// `/`
pub(super) async fn page(State(console): State<Console>, user: User) -> Result<Response, Problem> {
    let overview = console.operate.overview().await?;
    let mut cards: Vec<Card> = overview
        .services
        .iter()
        .map(|service| Card::new(service, &console.history.of(&service.name)))
        .collect();
    cards.sort_by_key(Card::position);
    answer(&Page {
        frame: Frame::new("Overview", "overview", &user),
        alerts: console
            .alerts
            .firing()
            .into_iter()
            .map(|alert| format!("{}: {}", alert.name, alert.summary))
            .collect(),
        tiles: tiles(&overview, &console.history.total()),
        cards,
        breakers: overview.breakers.iter().map(breaker).collect(),
        leaders: overview.leaders.iter().map(leader).collect(),
        workers: overview.workers.iter().map(worker).collect(),
        minutes: overview.window_seconds / 60,
    })
}

fn tiles(overview: &Overview, past: &[Sample]) -> Vec<Tile> {
    let services = &overview.services;
    let total = |of: fn(&ServiceView) -> Amount| {
        services
            .iter()
            .map(of)
            .fold(Amount::default(), Amount::plus)
    };
    let (ready, leased, later, dead) = (
        total(|s| s.ready),
        total(|s| s.leased),
        total(|s| s.waiting),
        total(|s| s.dead),
    );
    let per_minute: f64 = services.iter().map(|s| s.done_per_minute).sum();
    let oldest = services
        .iter()
        .filter_map(|s| s.oldest_seconds)
        .reduce(f64::max);
    let done = card::sum(services, |point| point.done);
    let died = card::sum(services, |point| point.dead);
    let sum = |of: fn(&ServiceView) -> i64| services.iter().map(of).sum::<i64>();
    let first = sum(|s| s.success.first_attempt);
    let after = sum(|s| s.success.after_retry);
    let ended = first + after + sum(|s| s.success.dead);
    let due: Vec<f64> = past.iter().map(|seen| seen.due).collect();
    let ages: Vec<f64> = past.iter().map(|seen| seen.oldest).collect();
    let firsts = card::shares(services, |point| point.done - point.done_after_retry);
    let goods = card::shares(services, |point| point.done);
    vec![
        Tile {
            name: "Throughput",
            value: format::rate(per_minute),
            unit: "per minute",
            more: format!(
                "{} in {} min",
                format::count(first + after),
                overview.window_seconds / 60
            ),
            class: "",
            link: "",
            spark: Spark::of(&done, 1.0, "throughput over time"),
        },
        Tile {
            name: "Due now",
            value: format::amount(ready),
            unit: "",
            more: format!(
                "{} in progress, {} scheduled",
                format::amount(leased),
                format::amount(later)
            ),
            class: "",
            link: "",
            spark: Spark::of(&due, 1.0, "due items over time"),
        },
        Tile {
            name: "Oldest due",
            value: oldest.map_or("none".to_owned(), format::span),
            unit: "",
            more: "waiting for a worker".to_owned(),
            class: if oldest.is_some_and(|age| age > 300.0) {
                "wait"
            } else {
                ""
            },
            link: "",
            spark: Spark::of(&ages, 1.0, "age of the oldest due item over time"),
        },
        Tile {
            name: "Dead letters",
            value: format::amount(dead),
            unit: "",
            more: "need attention".to_owned(),
            class: if dead.count > 0 { "bad" } else { "" },
            link: "/dead",
            spark: Spark::of(&died, 1.0, "dead letters over time"),
        },
        Tile {
            name: "First attempt",
            value: percent(first, ended),
            unit: "",
            more: "done without a retry".to_owned(),
            class: "",
            link: "",
            spark: Spark::of(&firsts, 1.0, "share done on the first attempt, over time"),
        },
        Tile {
            name: "Success after retries",
            value: percent(first + after, ended),
            unit: "",
            more: "done, with or without retries".to_owned(),
            class: "",
            link: "",
            spark: Spark::of(&goods, 1.0, "share done after retries, over time"),
        },
    ]
}

fn breaker(view: &BreakerView) -> Breaker {
    let (class, state) = match view.state.as_str() {
        "open" => ("bad", "open"),
        "half_open" => ("waiting", "half open"),
        _ => ("good", "closed"),
    };
    Breaker {
        name: view.dependency.clone(),
        class,
        state,
        failures: format::count(view.failures),
        since: view.since.into(),
    }
}

fn leader(view: &LeaderView) -> Leader {
    Leader {
        name: view.name.clone(),
        live: view.live,
        term: view.term,
        heartbeat: view.heartbeat.into(),
        ran: view.ran_at.map(When::from),
    }
}

fn worker(view: &WorkerView) -> Worker {
    Worker {
        id: view.id.clone(),
        name: view.name.clone(),
        table: view.work_table.clone(),
        kinds: view
            .kinds
            .as_ref()
            .map_or("all kinds".to_owned(), |kinds| kinds.join(", ")),
        alive: view.alive,
        since: view.started_at.into(),
        seen: view.seen_at.into(),
    }
}
