//! What a browser is shown when something is refused or fails.

use askama::Template;
use postrider_web::ProblemDetails;

use super::page::Frame;

#[derive(Template)]
#[template(path = "console/problem.html")]
struct Page<'a> {
    frame: Frame,
    problem: &'a ProblemDetails,
}

/// The problem as a page.
pub fn page(problem: &ProblemDetails) -> String {
    let page = Page {
        frame: Frame::bare(problem.title.clone()),
        problem,
    };
    // The title is ours and plain; should the template fail, it is still an answer.
    page.render()
        .unwrap_or_else(|_| format!("<!doctype html><title>{}</title>", problem.title))
}
