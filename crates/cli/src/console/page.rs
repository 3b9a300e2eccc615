//! The frame of every page: navigation, search, user, and the content security policy.

use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use postrider_web::{Problem, service::ServiceDescription};
use time::OffsetDateTime;

use super::{format, user::User};
use crate::services;

/// Pages load their own style and script and nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);

/// The frame around a page.
pub(super) struct Frame {
    /// Title.
    pub title: String,
    /// The current entry of the navigation.
    pub here: &'static str,
    /// The user; none before the login.
    pub who: Option<Who>,
    /// The token that forms of this session carry.
    pub form: String,
    /// Number of firing alerts.
    pub firing: usize,
    /// The search query.
    pub searched: String,
    /// Version of the assets, so that browsers never mix versions.
    pub stamp: &'static str,
    /// The services, for the navigation.
    pub services: Vec<&'static ServiceDescription>,
    /// When the page was rendered.
    pub now: String,
}

/// The user.
pub(super) struct Who {
    pub name: String,
    pub may_operate: bool,
    pub by_session: bool,
}

impl Frame {
    /// For an authenticated user.
    pub fn new(title: impl Into<String>, here: &'static str, user: &User) -> Self {
        Self {
            who: Some(Who {
                name: user.caller.name().to_owned(),
                may_operate: user.may_operate(),
                by_session: user.by_session,
            }),
            form: user.visit.form_token(),
            firing: user.firing,
            ..Self::bare(title)
        }
        .at(here)
    }

    /// Without a user.
    pub fn bare(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            here: "",
            who: None,
            form: String::new(),
            firing: 0,
            searched: String::new(),
            stamp: super::assets::stamp(),
            services: services::descriptions().collect(),
            now: format::moment(OffsetDateTime::now_utc()),
        }
    }

    /// May the user change anything?
    pub fn may_operate(&self) -> bool {
        self.who.as_ref().is_some_and(|who| who.may_operate)
    }

    fn at(mut self, here: &'static str) -> Self {
        self.here = here;
        self
    }
}

/// The page as a response.
pub(super) fn answer(page: &impl Template) -> Result<Response, Problem> {
    answer_with(StatusCode::OK, page)
}

/// The page as a response with this status.
pub(super) fn answer_with(status: StatusCode, page: &impl Template) -> Result<Response, Problem> {
    let html = page.render().map_err(Problem::internal)?;
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    Ok((status, headers, Html(html)).into_response())
}
