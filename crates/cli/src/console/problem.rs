//! Error pages.

use askama::Template;
use postrider_web::ProblemDetails;

use super::{format, page::Frame};

#[derive(Template)]
#[template(path = "console/problem.html")]
struct Page<'a> {
    frame: Frame,
    problem: &'a ProblemDetails,
    detail: String,
    errors: Vec<(String, String)>,
}

/// The problem as a page.
pub fn page(problem: &ProblemDetails) -> String {
    let page = Page {
        frame: Frame::bare(problem.title.clone()),
        problem,
        detail: format::rich(&problem.detail),
        errors: problem
            .errors
            .iter()
            .map(|error| (error.field.clone(), format::rich(&error.reason)))
            .collect(),
    };
    // The title is ours and needs no escaping, should the template fail.
    page.render()
        .unwrap_or_else(|_| format!("<!doctype html><title>{}</title>", problem.title))
}
