//! Settling payments that are stuck: asked for, confirmed, done under the operator's name, and shown.

use askama::Template;
use axum::{extract::State, response::Response};
use postrider::lease::Operator;
use postrider_payments::reconcile::Report;
use postrider_web::{Problem, Scope};

use super::super::{
    Console,
    page::{Frame, answer},
    user::{Form, User},
};

/// Payments on the page that tells.
const SHOWN: usize = 100;

#[derive(Template)]
#[template(path = "console/reconcile.html")]
struct Page {
    frame: Frame,
    report: Option<Report>,
    refused: bool,
}

/// `POST /services/payments/reconcile`
pub(in super::super) async fn reconcile(
    State(console): State<Console>,
    visitor: User,
    form: Form,
) -> Result<Response, Problem> {
    visitor.caller.must_have(Scope::Operate)?;
    let (sure, reason) = (form.get("sure") == "yes", form.get("reason").trim());
    let report = if sure && !reason.is_empty() {
        let operator = Operator::new(visitor.caller.name()).because(reason);
        Some(console.apis.payments.reconcile(&operator).await?)
    } else {
        None
    };
    answer(&Page {
        frame: Frame::new("Settle", "payments", &visitor),
        refused: sure && report.is_none(),
        report,
    })
}
