//! `/alerts/board`: what is wrong, what may soon be, and what to do about it. Programs ask the API at `/alerts`.

use askama::Template;
use axum::{extract::State, response::Response};
use postrider_web::Problem;

use super::{
    Console,
    format::When,
    page::{Frame, answer},
    user::User,
};
use crate::alerts::{self, Severity, Standing};

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

pub(super) async fn page(
    State(console): State<Console>,
    visitor: User,
) -> Result<Response, Problem> {
    let alerts: Vec<Alert> = alerts::list(&console.pool)
        .await?
        .into_iter()
        .map(alert)
        .collect();
    answer(&Page {
        frame: Frame::new("Alerts", "alerts", &visitor),
        firing: visitor.firing,
        alerts,
    })
}

fn alert(alert: alerts::Alert) -> Alert {
    let (state, class) = match alert.state {
        Standing::Firing => ("firing", "bad"),
        Standing::Pending => ("may fire soon", "waiting"),
        Standing::Resolved => ("over", "good"),
    };
    Alert {
        critical: alert.severity == Severity::Critical && alert.state == Standing::Firing,
        name: alert.name,
        summary: alert.summary,
        advice: alert.advice,
        state,
        class,
        since: alert.since.into(),
    }
}
