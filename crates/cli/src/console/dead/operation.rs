//! Redrive and archive: previewed, confirmed with a reason, performed under the operator's name.

use std::collections::BTreeMap;

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use postrider::{dead_letter::Action, lease::Operator};
use postrider_web::{Problem, Scope, error_code::codes::INVALID_VALUE};

use super::{
    super::{
        Console, format,
        login::see,
        page::{Frame, answer, answer_with},
        user::{Form, User, safe_path},
    },
    view::{Letter, Operation},
};
use crate::{
    operate::{
        dead::{OperateError, Request},
        filter::Filter,
    },
    services,
};

/// Dead letters on the confirmation page.
const MAX_SAMPLE: usize = 5;

#[derive(Template)]
#[template(path = "console/confirm.html")]
struct Page {
    frame: Frame,
    verb: &'static str,
    action: &'static str,
    redrive: bool,
    count: String,
    one: bool,
    more: bool,
    filters: Vec<String>,
    sample: Vec<Letter>,
    back: String,
    stale: bool,
    reason: String,
    rate: String,
    error: Option<String>,
}

/// `POST /dead/confirm`: shows what would change and asks for confirmation.
pub(in super::super) async fn confirm(
    State(console): State<Console>,
    user: User,
    form: Form,
) -> Result<Response, Problem> {
    user.caller.require_scope(Scope::Operate)?;
    let name = form.get("perform");
    let (action, filters) = match name.split_once(' ') {
        Some((action, "all")) => (parse(action)?, vec![form.get("filter").trim().to_owned()]),
        _ => (parse(name)?, selected(&form)?),
    };
    let back = format!(
        "/dead?filter={}",
        format::in_query(form.get("filter").trim())
    );
    preview(&console, &user, action, filters, back, None).await
}

/// `POST /dead/act`: performs it.
pub(in super::super) async fn act(
    State(console): State<Console>,
    user: User,
    form: Form,
) -> Result<Response, Problem> {
    user.caller.require_scope(Scope::Operate)?;
    let action = parse(form.get("perform"))?;
    let back = safe_path(form.get("back")).to_owned();
    let filters: Vec<String> = form.all("filter").map(str::to_owned).collect();
    let (reason, rate) = (form.get("reason").trim(), form.get("rate").trim());
    let invalid = |error: &str| {
        Some(InvalidForm {
            reason: reason.to_owned(),
            rate: rate.to_owned(),
            error: error.to_owned(),
        })
    };
    if reason.is_empty() {
        let invalid = invalid("Enter a reason: the audit log keeps it with your name.");
        return preview(&console, &user, action, filters, back, invalid).await;
    }
    let max_rate = match rate.parse::<f64>() {
        Ok(rate) => Some(rate),
        Err(_) if rate.is_empty() => None,
        Err(_) => {
            let invalid = invalid("The rate must be a number, such as 50.");
            return preview(&console, &user, action, filters, back, invalid).await;
        }
    };
    let operator = Operator::new(user.caller.name()).with_reason(reason);
    for filter in &filters {
        let request = Request {
            filter,
            rate: max_rate,
            limit: None,
            allow_stale: form.get("stale") == "yes",
        };
        match console.operate.submit(action, &operator, &request).await {
            Ok(_) => {}
            Err(OperateError::Value { field, problem }) => {
                let invalid = invalid(&format!("{field}: {problem}"));
                return preview(&console, &user, action, filters, back, invalid).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(see(&back))
}

#[derive(Template)]
#[template(path = "console/stop.html")]
struct StopPage {
    frame: Frame,
    operation: Operation,
}

/// `POST /dead/stop`: stops an operation, once confirmed.
pub(in super::super) async fn stop(
    State(console): State<Console>,
    user: User,
    form: Form,
) -> Result<Response, Problem> {
    user.caller.require_scope(Scope::Operate)?;
    let id = form.get("operation").parse().map_err(|_| {
        Problem::new(&INVALID_VALUE, "The form names no operation.")
            .field("operation", "is not a number")
    })?;
    if form.get("confirmed") != "yes" {
        let Some(operation) = console.operate.operation(id).await? else {
            return Ok(see("/dead"));
        };
        return answer(&StopPage {
            frame: Frame::new("Stop", "dead", &user),
            operation: operation.into(),
        });
    }
    let operator = Operator::new(user.caller.name());
    console.operate.stop(&operator, id).await?;
    Ok(see("/dead"))
}

/// What was entered, and what is wrong with it.
struct InvalidForm {
    reason: String,
    rate: String,
    error: String,
}

async fn preview(
    console: &Console,
    user: &User,
    action: Action,
    filters: Vec<String>,
    back: String,
    invalid: Option<InvalidForm>,
) -> Result<Response, Problem> {
    let (mut matching, mut incomplete) = (0, false);
    let (mut sample, mut canonical, mut stale) = (Vec::new(), Vec::new(), false);
    for filter in &filters {
        let preview = console.operate.preview(filter).await?;
        matching += preview.matching;
        incomplete |= preview.more;
        stale |= preview
            .sample
            .iter()
            .any(|letter| is_guarded(&letter.work_table));
        sample.extend(preview.sample.into_iter().map(Letter::from));
        canonical.push(preview.filter);
    }
    sample.truncate(MAX_SAMPLE);
    let (verb, redrive) = match action {
        Action::Redrive => ("Redrive", true),
        Action::Archive => ("Archive", false),
    };
    let status = if invalid.is_some() {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::OK
    };
    let (reason, rate, error) = match invalid {
        Some(form) => (form.reason, form.rate, Some(form.error)),
        None => (String::new(), String::new(), None),
    };
    let page = Page {
        frame: Frame::new(verb, "dead", user),
        verb,
        action: action.as_str(),
        redrive,
        count: format!(
            "{}{}",
            format::count(matching),
            if incomplete { "+" } else { "" }
        ),
        one: matching == 1,
        more: matching > i64::try_from(sample.len()).unwrap_or(i64::MAX),
        filters: canonical,
        sample,
        back,
        stale: stale && redrive,
        reason,
        rate,
        error,
    };
    answer_with(status, &page)
}

/// Does redriving this table's items need a confirmation that they may be stale?
fn is_guarded(table: &str) -> bool {
    services::descriptions()
        .flat_map(|service| service.redrive_guards)
        .any(|(guarded, _)| *guarded == table)
}

fn parse(word: &str) -> Result<Action, Problem> {
    match word {
        "redrive" => Ok(Action::Redrive),
        "archive" => Ok(Action::Archive),
        _ => Err(Problem::new(&INVALID_VALUE, "The form names no action.")
            .field("perform", "is neither redrive nor archive")),
    }
}

/// The selected items, as one filter per table.
fn selected(form: &Form) -> Result<Vec<String>, Problem> {
    let mut by_table: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for item in form.all("item") {
        let parsed = item
            .rsplit_once('/')
            .and_then(|(table, id)| Some((table, id.parse().ok()?)));
        let (table, id) = parsed.ok_or_else(|| {
            Problem::new(&INVALID_VALUE, "The form names an invalid item.")
                .field("item", "is not a table and an id")
        })?;
        by_table.entry(table).or_default().push(id);
    }
    if by_table.is_empty() {
        return Err(Problem::new(
            &INVALID_VALUE,
            "Nothing is selected: tick dead letters, or choose all that match.",
        )
        .field("item", "none is selected"));
    }
    let filter = |(table, ids): (&str, Vec<i64>)| {
        let filter = Filter {
            table: Some(table.to_owned()),
            ids,
            ..Filter::default()
        };
        filter.to_string()
    };
    Ok(by_table.into_iter().map(filter).collect())
}
