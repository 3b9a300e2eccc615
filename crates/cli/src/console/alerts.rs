//! `/alerts/board`: alerts and what to do about them. The API is at `/alerts`.

use askama::Template;
use axum::{extract::State, response::Response};
use postrider_web::Problem;

use super::{
    Console,
    format::{self, When},
    page::{Frame, answer},
    user::User,
};
use crate::alerts::{self, AlertState, Severity};

struct Alert {
    name: String,
    summary: String,
    advice: String,
    state: &'static str,
    class: &'static str,
    critical: bool,
    since: When,
}

#[derive(Template)]
#[template(path = "console/alerts.html")]
struct Page {
    frame: Frame,
    firing: usize,
    alerts: Vec<Alert>,
}

pub(super) async fn page(State(console): State<Console>, user: User) -> Result<Response, Problem> {
    let alerts: Vec<Alert> = alerts::list(&console.pool)
        .await?
        .into_iter()
        .map(alert)
        .collect();
    answer(&Page {
        frame: Frame::new("Alerts", "alerts", &user),
        firing: user.firing,
        alerts,
    })
}

fn alert(alert: alerts::Alert) -> Alert {
    let class = match alert.state {
        AlertState::Firing => "bad",
        AlertState::Pending => "waiting",
        AlertState::Resolved => "good",
    };
    Alert {
        critical: alert.severity == Severity::Critical && alert.state == AlertState::Firing,
        name: alert.name,
        summary: format::rich(&alert.summary),
        advice: format::rich(&alert.advice),
        state: alert.state.as_str(),
        class,
        since: alert.since.into(),
    }
}
