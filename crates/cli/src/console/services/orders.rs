//! Orders as rows.

use postrider_orders::{
    Orders,
    model::{LedgerStatus, OutboxStatus},
    store::{Filter, ListedOrder},
};
use postrider_web::Problem;
use serde_json::Value;

use super::{Job, Listing, Tone, Wanted};

pub(super) async fn list(orders: &Orders, wanted: &Wanted) -> Result<Listing, Problem> {
    let filter = Filter {
        status: wanted.status()?,
        account: wanted.owner(),
        symbol: None,
    };
    let page = orders
        .list(&filter, wanted.cursor.as_ref(), Wanted::limit())
        .await?;
    Ok(Listing::new(page.map(job)))
}

fn job(row: ListedOrder) -> Job {
    let field = |name: &str| match &row.request[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let about = ["side", "quantity", "symbol", "account"].map(field);
    let about: Vec<String> = about.into_iter().filter(|word| !word.is_empty()).collect();
    let status = row.view.outbox.as_ref().map(|outbox| outbox.status);
    let tone = match (status, row.view.status) {
        (Some(OutboxStatus::Succeeded), _) | (None, LedgerStatus::Succeeded) => Tone::Good,
        (Some(OutboxStatus::Sending), _) => Tone::Busy,
        (Some(OutboxStatus::Pending | OutboxStatus::Failed), _)
        | (None, LedgerStatus::Accepted) => Tone::Waiting,
        (Some(OutboxStatus::Aborted), _) | (None, LedgerStatus::Failed) => Tone::Bad,
    };
    let note = row.view.outbox.as_ref().map_or_else(String::new, |outbox| {
        let words = [&outbox.last_error_code, &outbox.last_error_msg];
        words
            .into_iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .join(": ")
    });
    Job {
        id: row.view.idempotency_key.clone(),
        about: about.join(" "),
        state: status.map_or("finished".to_owned(), |status| status.to_string()),
        tone,
        bar: None,
        attempts: row
            .view
            .outbox
            .map_or(0, |outbox| i64::from(outbox.attempts)),
        note,
        at: row.accepted_at.into(),
    }
}
