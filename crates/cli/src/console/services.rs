//! A page per service: its items, their progress, and links to their timelines. Everything on it comes from the
//! service's description.

mod action;
mod repair;
mod row;

use askama::Template;
use axum::{extract::State, response::Response};
use postrider_web::{
    Path, Problem, Query,
    error_code::codes::NOT_FOUND,
    service::{ListQuery, Service, ServiceDescription},
};

pub(super) use action::{act, offered};
pub(super) use repair::repair;
use row::Row;

use super::{
    Console, format,
    overview::Card,
    page::{Frame, answer},
    user::User,
};
use crate::services;

#[derive(Template)]
#[template(path = "console/service.html")]
struct Page {
    frame: Frame,
    service: &'static ServiceDescription,
    status: String,
    owner: String,
    filtered: bool,
    first: bool,
    rows: Vec<Row>,
    more: Option<String>,
    card: Option<Card>,
    minutes: i64,
    step: i64,
}

impl Page {
    fn has_progress(&self) -> bool {
        self.rows.iter().any(|row| row.bar.is_some())
    }

    fn has_failed_attempts(&self) -> bool {
        self.rows.iter().any(|row| row.failed_attempts > 0)
    }

    /// The label of the service's repair, if a listed item may need it.
    fn repair(&self) -> Option<&'static str> {
        let repair = self.service.repair.as_ref()?;
        let needed = self.rows.iter().any(|row| row.state == repair.state);
        needed.then_some(repair.label)
    }
}

/// `/services/{name}`
pub(super) async fn page(
    State(console): State<Console>,
    user: User,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let service = find(&console, &name)?;
    let listing = service.list(&query).await?;
    let service = service.description();
    let more = listing.next_cursor.as_ref().map(|cursor| {
        format!(
            "/services/{name}?status={}&owner={}&cursor={}",
            format::in_query(&query.status),
            format::in_query(&query.owner),
            format::in_query(cursor),
        )
    });
    let overview = console.operate.overview().await?;
    let card = overview.services.iter().find(|view| view.name == name);
    let card = card.map(|view| Card::new(view, &console.history.of(&name)));
    answer(&Page {
        card,
        minutes: overview.window_seconds / 60,
        step: overview.step_seconds,
        frame: Frame::new(service.title, service.name, &user),
        service,
        filtered: !query.status.is_empty() || !query.owner.is_empty(),
        first: query.cursor.is_none(),
        status: query.status,
        owner: query.owner,
        rows: listing.items.into_iter().map(Row::from).collect(),
        more,
    })
}

/// The service with this name.
fn find<'a>(console: &'a Console, name: &str) -> Result<&'a dyn Service, Problem> {
    console.apis.find(name).ok_or_else(|| {
        let names: Vec<&str> = services::descriptions().map(|known| known.name).collect();
        let detail = format!(
            "No service has this name. The services are {}.",
            names.join(", ")
        );
        Problem::new(&NOT_FOUND, detail)
    })
}
