//! What every page has: the bar with its search box, who looks, and the policy that forbids everything inline.

use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use postrider_web::{Problem, service::ServiceDescription};
use time::OffsetDateTime;

use super::{format, user::User};
use crate::services;

/// Pages load their style, their script and nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);

/// The frame around a page.
pub(super) struct Frame {
    /// What it is about.
    pub title: String,
    /// Which word of the bar it belongs to.
    pub here: &'static str,
    /// Who looks; none before the login.
    pub who: Option<Who>,
    /// The mark that forms of this visit carry.
    pub form: String,
    /// So many alerts fire.
    pub firing: usize,
    /// What was searched for.
    pub searched: String,
    /// What the assets are asked for by, so that a new program is not shown in an old dress.
    pub stamp: &'static str,
    /// The services, for the bar.
    pub services: Vec<&'static ServiceDescription>,
    /// When the page was made.
    pub now: String,
}

/// Somebody who looks.
pub(super) struct Who {
    pub name: String,
    pub may_operate: bool,
    pub by_session: bool,
}

impl Frame {
    /// For somebody who may look.
    pub fn new(title: impl Into<String>, here: &'static str, visitor: &User) -> Self {
        Self {
            who: Some(Who {
                name: visitor.caller.name().to_owned(),
                may_operate: visitor.may_operate(),
                by_session: visitor.by_session,
            }),
            form: visitor.visit.form_token(),
            firing: visitor.firing,
            ..Self::bare(title)
        }
        .at(here)
    }

    /// For nobody in particular.
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

    /// May whoever looks change anything?
    pub fn may_operate(&self) -> bool {
        self.who.as_ref().is_some_and(|who| who.may_operate)
    }

    fn at(mut self, here: &'static str) -> Self {
        self.here = here;
        self
    }
}

/// The page as an answer.
pub(super) fn answer(page: &impl Template) -> Result<Response, Problem> {
    answer_with(StatusCode::OK, page)
}

/// The page as an answer of this status.
pub(super) fn answer_with(status: StatusCode, page: &impl Template) -> Result<Response, Problem> {
    let html = page.render().map_err(Problem::internal)?;
    let headers = [(header::CONTENT_SECURITY_POLICY, POLICY)];
    Ok((status, headers, Html(html)).into_response())
}
