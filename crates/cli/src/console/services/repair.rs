//! A service's repair, such as reconciling stuck payments: confirmed with a reason, performed, reported.

use askama::Template;
use axum::{extract::State, response::Response};
use postrider::lease::Operator;
use postrider_web::{
    Path, Problem,
    error_code::codes::NOT_FOUND,
    service::{Repair, Repaired, ServiceDescription},
};

use super::{
    super::{
        Console,
        page::{Frame, answer},
        user::{Form, User},
    },
    action::MAX_REASON,
    find,
};

/// Maximum number of items on the report page.
const MAX_SHOWN: usize = 100;

#[derive(Template)]
#[template(path = "console/repair.html")]
struct Page {
    frame: Frame,
    service: &'static ServiceDescription,
    repair: &'static Repair,
    report: Option<Repaired>,
    reason_missing: bool,
}

/// `POST /services/{name}/repair`
pub(in super::super) async fn repair(
    State(console): State<Console>,
    user: User,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Problem> {
    let running = find(&console, &name)?;
    let service = running.description();
    let repair = service
        .repair
        .as_ref()
        .ok_or_else(|| Problem::new(&NOT_FOUND, "This service has nothing to repair."))?;
    user.caller.require_scope(repair.scope)?;
    let (confirmed, reason) = (form.get("confirmed") == "yes", form.get("reason").trim());
    let report = if confirmed && !reason.is_empty() {
        let operator = Operator::new(user.caller.name()).with_reason(reason);
        Some(running.repair(&operator).await?)
    } else {
        None
    };
    answer(&Page {
        frame: Frame::new(repair.label, service.name, &user),
        service,
        repair,
        reason_missing: confirmed && report.is_none(),
        report,
    })
}
