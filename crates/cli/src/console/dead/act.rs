//! Redrive and archive: asked for, shown once more with what it would change, then done under the operator's name.

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
use crate::operate::{
    dead::{Refused, Wish},
    filter::Filter,
};

/// Letters on the page that asks.
const SAMPLE: usize = 5;

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
    refused: Option<String>,
}

/// `POST /dead/confirm`: what would be changed, and whether that is meant.
pub(in super::super) async fn confirm(
    State(console): State<Console>,
    visitor: User,
    form: Form,
) -> Result<Response, Problem> {
    visitor.caller.must_have(Scope::Operate)?;
    let wanted = form.get("do");
    let (action, filters) = match wanted.split_once(' ') {
        Some((action, "all")) => (read(action)?, vec![form.get("filter").trim().to_owned()]),
        _ => (read(wanted)?, selected(&form)?),
    };
    let back = format!(
        "/dead?filter={}",
        format::in_query(form.get("filter").trim())
    );
    ask(&console, &visitor, action, filters, back, None).await
}

/// `POST /dead/act`: does it.
pub(in super::super) async fn act(
    State(console): State<Console>,
    visitor: User,
    form: Form,
) -> Result<Response, Problem> {
    visitor.caller.must_have(Scope::Operate)?;
    let action = read(form.get("do"))?;
    let back = safe_path(form.get("back")).to_owned();
    let filters: Vec<String> = form.all("filter").map(str::to_owned).collect();
    let (reason, rate) = (form.get("reason").trim(), form.get("rate").trim());
    let told = |refused: &str| {
        Some(Told {
            reason: reason.to_owned(),
            rate: rate.to_owned(),
            refused: refused.to_owned(),
        })
    };
    if reason.is_empty() {
        let told = told("Say why: the audit keeps it beside your name.");
        return ask(&console, &visitor, action, filters, back, told).await;
    }
    let pace = match rate.parse::<f64>() {
        Ok(rate) => Some(rate),
        Err(_) if rate.is_empty() => None,
        Err(_) => {
            let told = told("The rate must be a number, such as 50.");
            return ask(&console, &visitor, action, filters, back, told).await;
        }
    };
    let operator = Operator::new(visitor.caller.name()).because(reason);
    for filter in &filters {
        let wish = Wish {
            filter,
            rate: pace,
            most: None,
            allow_stale: form.get("stale") == "yes",
        };
        match console.operate.act(action, &operator, &wish).await {
            Ok(_) => {}
            Err(Refused::Value { field, problem }) => {
                let told = told(&format!("{field}: {problem}"));
                return ask(&console, &visitor, action, filters, back, told).await;
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

/// `POST /dead/stop`: ends an order early, once the operator has said yes.
pub(in super::super) async fn stop(
    State(console): State<Console>,
    visitor: User,
    form: Form,
) -> Result<Response, Problem> {
    visitor.caller.must_have(Scope::Operate)?;
    let id = form.get("operation").parse().map_err(|_| {
        Problem::new(&INVALID_VALUE, "The form names no operation.")
            .field("operation", "is no number")
    })?;
    if form.get("sure") != "yes" {
        let Some(operation) = console.operate.operation(id).await? else {
            return Ok(see("/dead"));
        };
        return answer(&StopPage {
            frame: Frame::new("Stop", "dead", &visitor),
            operation: operation.into(),
        });
    }
    let operator = Operator::new(visitor.caller.name());
    console.operate.stop(&operator, id).await?;
    Ok(see("/dead"))
}

/// What was typed and why that can't be.
struct Told {
    reason: String,
    rate: String,
    refused: String,
}

async fn ask(
    console: &Console,
    visitor: &User,
    action: Action,
    filters: Vec<String>,
    back: String,
    told: Option<Told>,
) -> Result<Response, Problem> {
    let (mut matching, mut uncounted) = (0, false);
    let (mut sample, mut understood, mut stale) = (Vec::new(), Vec::new(), false);
    for filter in &filters {
        let preview = console.operate.preview(filter).await?;
        matching += preview.matching;
        uncounted |= preview.more;
        stale |= preview
            .sample
            .iter()
            .any(|letter| letter.service == "orders");
        sample.extend(preview.sample.into_iter().map(Letter::from));
        understood.push(preview.filter);
    }
    sample.truncate(SAMPLE);
    let (verb, redrive) = match action {
        Action::Redrive => ("Redrive", true),
        Action::Archive => ("Archive", false),
    };
    let status = if told.is_some() {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::OK
    };
    let (reason, rate, refused) = match told {
        Some(told) => (told.reason, told.rate, Some(told.refused)),
        None => (String::new(), String::new(), None),
    };
    let page = Page {
        frame: Frame::new(verb, "dead", visitor),
        verb,
        action: action.as_str(),
        redrive,
        count: format!(
            "{}{}",
            format::count(matching),
            if uncounted { "+" } else { "" }
        ),
        one: matching == 1,
        more: matching > i64::try_from(sample.len()).unwrap_or(i64::MAX),
        filters: understood,
        sample,
        back,
        stale: stale && redrive,
        reason,
        rate,
        refused,
    };
    answer_with(status, &page)
}

fn read(word: &str) -> Result<Action, Problem> {
    match word {
        "redrive" => Ok(Action::Redrive),
        "archive" => Ok(Action::Archive),
        _ => Err(Problem::new(
            &INVALID_VALUE,
            "The form asks for nothing that can be done.",
        )
        .field("do", "is neither redrive nor archive")),
    }
}

/// What was ticked, as one filter for each table.
fn selected(form: &Form) -> Result<Vec<String>, Problem> {
    let mut by_table: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for item in form.all("item") {
        let read = item
            .rsplit_once('/')
            .and_then(|(table, id)| Some((table, id.parse().ok()?)));
        let (table, id) = read.ok_or_else(|| {
            Problem::new(&INVALID_VALUE, "The form names a letter that can't be one.")
                .field("item", "is no table and number")
        })?;
        by_table.entry(table).or_default().push(id);
    }
    if by_table.is_empty() {
        return Err(Problem::new(
            &INVALID_VALUE,
            "Nothing was selected: tick the letters that are meant, or take all that fit.",
        )
        .field("item", "none is ticked"));
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
