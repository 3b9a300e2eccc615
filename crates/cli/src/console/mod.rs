//! The console: pages for operators at `/`, rendered by the server.
//!
//! The promises: every page works without JavaScript, on a phone, in light and dark mode; input from outside is rendered
//! as text, never as markup; a page needs the scope `read`; a change needs `operate`, a form that this session received
//! from us, and a confirmation.
//!
//! Reading order: `user` (authentication and forms), `page` (the frame of every page), then the pages.

mod alerts;
mod assets;
mod chart;
mod dead;
mod format;
mod history;
mod login;
mod overview;
mod page;
mod problem;
mod services;
mod session;
mod timeline;
mod user;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    middleware::from_fn_with_state,
    routing::{get, post},
};
use postrider_web::Tokens;
use serde::Deserialize;
use sqlx::PgPool;

pub use problem::page as problem_page;

use crate::{http::State, operate::Operate, services::Apis};

/// Paths of the console. It authenticates users itself and redirects to the login page, so the middleware lets these
/// through.
pub const PATHS: [&str; 18] = [
    "/",
    "/services/{name}",
    "/services/{name}/act",
    "/services/{name}/repair",
    "/dead",
    "/dead/{table}/{id}",
    "/dead/confirm",
    "/dead/act",
    "/dead/stop",
    "/trace/{id}",
    "/search",
    "/alerts/board",
    "/login",
    "/logout",
    "/assets/console.css",
    "/assets/console.js",
    "/assets/icon.svg",
    "/favicon.ico",
];

/// `[console]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Lifetime of a login.
    #[serde(with = "postrider::internal::duration")]
    pub session: Duration,
}

/// State of the pages. Cheap to clone.
#[derive(Clone)]
pub struct Console {
    pool: PgPool,
    apis: Arc<Apis>,
    operate: Operate,
    alerts: crate::alerts::State,
    history: Arc<history::History>,
    sessions: session::Sessions,
}

impl Console {
    /// A console over these services, for callers with these tokens. Call it inside a tokio runtime.
    #[must_use]
    pub fn new(state: &State, tokens: &Arc<Tokens>, settings: Settings) -> Self {
        let pool = state.pool.clone();
        Self {
            pool: pool.clone(),
            alerts: state.alerts.clone(),
            apis: Arc::clone(&state.apis),
            operate: state.operate.clone(),
            history: history::History::start(state.operate.clone()),
            sessions: session::Sessions::new(pool, Arc::clone(tokens), settings.session),
        }
    }
}

/// All pages, forms and assets.
pub fn routes(console: Console) -> Router {
    let pages = Router::new()
        .route("/", get(overview::page))
        .route("/services/{name}", get(services::page))
        .route("/services/{name}/act", post(services::act))
        .route("/services/{name}/repair", post(services::repair))
        .route("/dead", get(dead::page))
        .route("/dead/{table}/{id}", get(dead::item))
        .route("/dead/confirm", post(dead::confirm))
        .route("/dead/act", post(dead::act))
        .route("/dead/stop", post(dead::stop))
        .route("/trace/{id}", get(timeline::page))
        .route("/search", get(timeline::search))
        .route("/alerts/board", get(alerts::page))
        .route_layer(from_fn_with_state(console.clone(), user::admit));
    let login = Router::new()
        .route("/login", get(login::page).post(login::enter))
        .route("/logout", post(login::leave));
    pages
        .merge(login)
        .with_state(console)
        .merge(assets::routes())
}
