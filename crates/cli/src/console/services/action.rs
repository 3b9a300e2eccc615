//! An action on one item: shown with its effect, confirmed with a reason, performed under the operator's name.

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use postrider::lease::Operator;
use postrider_web::{
    Path, Problem,
    error_code::codes::INVALID_VALUE,
    service::{Action, ActionRequest, Fact, Service, ServiceDescription},
};

use super::{
    super::{
        Console, format,
        page::{Frame, answer_with},
        user::{Form, User},
    },
    find,
};
use crate::{operate::timeline::Subject, services};

/// Maximum length of a reason, in characters.
pub(super) const MAX_REASON: usize = 500;

#[derive(Template)]
#[template(path = "console/action.html")]
struct Page {
    frame: Frame,
    service: &'static ServiceDescription,
    action: &'static Action,
    id: String,
    timeline: String,
    facts: Vec<Fact>,
    reason: String,
    /// The outcome, once it has been performed.
    outcome: Option<String>,
    error: Option<String>,
}

/// The actions that this item's state allows.
pub(in super::super) fn offered(subject: &Subject) -> Vec<&'static Action> {
    let service = services::descriptions().find(|known| known.name == subject.service);
    let actions = service
        .filter(|service| service.kind == subject.kind)
        .map_or(&[][..], |service| service.actions);
    actions
        .iter()
        .filter(|action| action.states.contains(&subject.state.as_str()))
        .filter(|action| !action.needs_work_item || !subject.items.is_empty())
        .collect()
}

/// `POST /services/{name}/act`
pub(in super::super) async fn act(
    State(console): State<Console>,
    user: User,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Problem> {
    let service = find(&console, &name)?;
    let description = service.description();
    let action = description.action(form.get("perform")).ok_or_else(|| {
        Problem::new(&INVALID_VALUE, "The service has no such action.")
            .field("perform", "is not an action of this service")
    })?;
    user.caller.require_scope(action.scope)?;
    let id = form.get("id");
    let reason = form.get("reason").trim();
    let mut page = Page {
        frame: Frame::new(action.label, description.name, &user),
        service: description,
        action,
        id: id.to_owned(),
        timeline: format!("/trace/{}", format::in_path(id)),
        facts: facts(&console, service, id).await?,
        reason: reason.to_owned(),
        outcome: None,
        error: None,
    };
    if form.get("confirmed") != "yes" {
        return answer_with(StatusCode::OK, &page);
    }
    let acknowledged = form.get("acknowledged") == "yes";
    if let Some(missing) = missing(action, reason, acknowledged) {
        page.error = Some(missing);
        return answer_with(StatusCode::UNPROCESSABLE_ENTITY, &page);
    }
    let operator = Operator::new(user.caller.name()).with_reason(reason);
    let request = ActionRequest {
        action: action.name,
        id,
        confirmed: acknowledged,
        operator: &operator,
    };
    let status = match service.act(request).await {
        Ok(outcome) => {
            page.facts = facts(&console, service, id).await?;
            page.outcome = Some(outcome);
            StatusCode::OK
        }
        // The item's state has changed meanwhile, or doesn't allow it: say so on the same page.
        Err(problem) if problem.status().is_client_error() => {
            page.error = Some(problem.details().detail.clone());
            problem.status()
        }
        Err(problem) => return Err(problem),
    };
    answer_with(status, &page)
}

/// What the form lacks.
fn missing(action: &Action, reason: &str, acknowledged: bool) -> Option<String> {
    if reason.is_empty() {
        return Some("Enter a reason: the audit log keeps it with your name.".to_owned());
    }
    if reason.chars().count() > MAX_REASON {
        return Some(format!(
            "The reason may have at most {MAX_REASON} characters."
        ));
    }
    let confirmation = action.confirmation.as_ref()?;
    let missing = confirmation.required && !acknowledged;
    missing.then(|| format!("Tick “{}” to confirm.", confirmation.label))
}

/// The item's state and what the service says about it. The id of a part leads to the whole in a timeline; an action
/// changes only the item that the form names.
async fn facts(console: &Console, service: &dyn Service, id: &str) -> Result<Vec<Fact>, Problem> {
    let description = service.description();
    let subjects = console.operate.search(id).await?;
    let subject = subjects
        .into_iter()
        .find(|subject| {
            subject.service == description.name
                && subject.kind == description.kind
                && subject.key == id
        })
        .ok_or_else(|| description.unknown_item())?;
    let item = subject.items.first().and_then(|item| item.rsplit_once('/'));
    let item = match item {
        Some((table, number)) => {
            let number = number.parse().map_err(Problem::internal)?;
            console.operate.item(table, number).await?
        }
        None => None,
    };
    let more = service
        .facts(id, item.as_ref().map(|item| &item.row))
        .await?;
    let mut facts = vec![Fact::new("State", subject.state)];
    facts.extend(more.into_iter().filter(|fact| !fact.value.is_empty()));
    Ok(facts)
}
