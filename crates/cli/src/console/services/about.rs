//! What somebody should see of a job before they do something to it.

use postrider_protocols::model::{Criterion, Kind};
use postrider_web::Problem;
use serde_json::Value;
use uuid::Uuid;

use super::{
    super::{Console, format},
    Service,
    action::Deed,
};
use crate::operate::trace::Subject;

/// One line about a job.
pub(super) struct Fact {
    pub name: &'static str,
    pub value: String,
}

fn fact(name: &'static str, value: impl Into<String>) -> Fact {
    Fact {
        name,
        value: value.into(),
    }
}

/// How the job stands, and what it is.
pub(super) async fn facts(console: &Console, deed: Deed, id: &str) -> Result<Vec<Fact>, Problem> {
    let subjects = console.operate.search(id).await?;
    let subject = subjects
        .into_iter()
        .find(|subject| is_meant(deed, id, subject))
        .ok_or_else(|| deed.unknown())?;
    let more = match deed.service() {
        Service::Orders => order(console, &subject).await?,
        Service::Exports => export(console, id).await?,
        Service::Evidence => evidence(console, id).await?,
        Service::Protocols => protocol(console, id).await?,
        Service::Payments => Vec::new(),
    };
    let mut facts = vec![fact("State", subject.state)];
    facts.extend(more.into_iter().filter(|fact| !fact.value.is_empty()));
    Ok(facts)
}

/// An id of a part leads to the whole in a timeline; what is done is done to what the form names, and to nothing else.
fn is_meant(deed: Deed, id: &str, subject: &Subject) -> bool {
    subject.service == deed.service().name() && subject.kind == deed.kind() && subject.key == id
}

async fn order(console: &Console, subject: &Subject) -> Result<Vec<Fact>, Problem> {
    let item = subject.items.first().and_then(|item| item.rsplit_once('/'));
    let Some((table, number)) = item else {
        return Ok(Vec::new());
    };
    let number = number.parse().map_err(Problem::internal)?;
    let Some(item) = console.operate.item(table, number).await? else {
        return Ok(Vec::new());
    };
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let request = &item.row["order_request_json"];
    let [side, quantity, symbol] = ["side", "quantity", "symbol"].map(|name| text(&request[name]));
    Ok(vec![
        fact("Order", format!("{side} {quantity} {symbol}")),
        fact("Limit", text(&request["limit_price"])),
        fact("Account", text(&request["account"])),
        fact("Expires", text(&request["expires_at"])),
        fact("Remark", text(&item.row["last_error_msg"])),
    ])
}

async fn export(console: &Console, id: &str) -> Result<Vec<Fact>, Problem> {
    let Some(progress) = console.apis.exports.progress(id).await? else {
        return Ok(Vec::new());
    };
    let [done, total, running, failed] = [
        progress.done,
        progress.total,
        progress.running,
        progress.failed,
    ]
    .map(format::count);
    Ok(vec![
        fact(
            "Inputs",
            format!("{done} of {total} done, {running} running, {failed} failed"),
        ),
        fact("Error", progress.error_message.unwrap_or_default()),
    ])
}

async fn evidence(console: &Console, id: &str) -> Result<Vec<Fact>, Problem> {
    let Ok(id) = id.parse::<Uuid>() else {
        return Ok(Vec::new());
    };
    let Some(job) = console.apis.evidence.show(id).await? else {
        return Ok(Vec::new());
    };
    let [attached, total, failed, pending] =
        [job.attached, job.total, job.failed, job.pending].map(format::count);
    Ok(vec![
        fact("Merchant", job.merchant_id),
        fact(
            "Files",
            format!("{attached} of {total} attached, {failed} failed, {pending} not tried yet"),
        ),
    ])
}

async fn protocol(console: &Console, id: &str) -> Result<Vec<Fact>, Problem> {
    let Ok(id) = id.parse::<Uuid>() else {
        return Ok(Vec::new());
    };
    let Some(view) = console.apis.protocols.show(id).await? else {
        return Ok(Vec::new());
    };
    let mut facts = vec![
        fact("Title", view.title),
        fact("Error", view.error_reason.unwrap_or_default()),
    ];
    // All of them: whoever approves has read them.
    facts.extend(view.criteria.iter().map(criterion));
    Ok(facts)
}

fn criterion(criterion: &Criterion) -> Fact {
    let name = match criterion.kind {
        Kind::Inclusion => "Inclusion",
        Kind::Exclusion => "Exclusion",
    };
    let number = criterion.number.as_deref().unwrap_or("•");
    let mut value = format!("{number} {}", criterion.text);
    let terms: Vec<String> = criterion
        .terms
        .iter()
        .map(|term| format!("{} {}", term.code, term.label))
        .collect();
    if !terms.is_empty() {
        value = format!("{value} [{}]", terms.join("; "));
    }
    fact(name, value)
}
