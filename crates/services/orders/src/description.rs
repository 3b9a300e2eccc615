//! What the program knows about orders: states, actions, schema, and how the console lists and changes them.

use futures_util::future::BoxFuture;
use postrider_inspect::timeline::Timeline;
use postrider_web::{
    Page, Problem,
    service::{
        Action, ActionRequest, Confirmation, Fact, ItemSummary, ListQuery, Service,
        ServiceDescription, Tone,
    },
};
use serde_json::Value;

use crate::{
    CHECKS, OUTBOX_ORDERS, Orders, REOPEN, codes, gauges,
    model::{LedgerStatus, OutboxStatus, key},
    store::{Filter, ListedOrder},
};

/// The service's description.
pub static DESCRIPTION: ServiceDescription = ServiceDescription {
    name: "orders",
    title: "Orders",
    summary: "Accepted once per idempotency key and sent to the trading broker.",
    kind: "order",
    states: &["pending", "sending", "succeeded", "failed", "aborted"],
    owner: Some("Account"),
    actions: &[
        Action {
            needs_work_item: true,
            destructive: true,
            ..Action::new(
                "cancel",
                "Cancel",
                &["pending", "sending", "failed"],
                "The order is never sent to the broker and can't be redriven. An order that may have reached the \
                 broker is left unchanged.",
            )
        },
        Action {
            needs_work_item: true,
            confirmation: Some(Confirmation {
                label: "Send it even though it may be stale",
                hint: "The market may have moved since.",
                required: true,
            }),
            ..Action::new(
                "redrive",
                "Redrive",
                &["aborted"],
                "The order is sent again with fresh attempts. Fix the cause first, or it will be aborted again.",
            )
        },
    ],
    repair: None,
    migrations: || vec![crate::migrations()],
    codes: codes::ALL,
    tables: &[&OUTBOX_ORDERS],
    redrive_guards: &[(OUTBOX_ORDERS.name, REOPEN)],
    checks: CHECKS,
    parked_reasons: &[],
    register_metrics: gauges::register,
    gauges: |pool| Box::pin(gauges::read(pool)),
};

impl Service for Orders {
    fn description(&self) -> &'static ServiceDescription {
        &DESCRIPTION
    }

    fn timeline<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<Timeline>, sqlx::Error>> {
        Box::pin(self.timeline(id))
    }

    fn list<'a>(
        &'a self,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<ItemSummary>, Problem>> {
        Box::pin(async move {
            let filter = Filter {
                status: query.status()?,
                account: query.owner(),
                symbol: None,
            };
            let cursor = query.cursor.as_ref();
            let page = self.list(&filter, cursor, ListQuery::limit()).await?;
            Ok(page.map(summary))
        })
    }

    fn facts<'a>(
        &'a self,
        _id: &'a str,
        row: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<Fact>, Problem>> {
        let facts = row.map(facts).unwrap_or_default();
        Box::pin(std::future::ready(Ok(facts)))
    }

    fn act<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<String, Problem>> {
        Box::pin(async move {
            let key = key(request.id).map_err(|_| DESCRIPTION.unknown_item())?;
            match request.action {
                "cancel" => {
                    self.cancel(&key, request.operator).await?;
                    Ok("The order is cancelled and will never be sent to the broker.".to_owned())
                }
                "redrive" => {
                    self.redrive(&key, request.operator).await?;
                    Ok("The order will be sent as soon as a worker is free.".to_owned())
                }
                _ => Err(request.unknown()),
            }
        })
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn facts(row: &Value) -> Vec<Fact> {
    let request = &row["order_request_json"];
    let [side, quantity, symbol] = ["side", "quantity", "symbol"].map(|name| text(&request[name]));
    vec![
        Fact::new("Order", format!("{side} {quantity} {symbol}")),
        Fact::new("Limit", text(&request["limit_price"])),
        Fact::new("Account", text(&request["account"])),
        Fact::new("Expires", text(&request["expires_at"])),
        Fact::new("Remark", text(&row["last_error_msg"])),
    ]
}

fn summary(row: ListedOrder) -> ItemSummary {
    let about = ["side", "quantity", "symbol", "account"].map(|name| text(&row.request[name]));
    let about: Vec<String> = about.into_iter().filter(|word| !word.is_empty()).collect();
    let outbox = row.view.outbox.as_ref();
    let status = outbox.map(|outbox| outbox.status);
    let tone = match (status, row.view.status) {
        (Some(OutboxStatus::Succeeded), _) | (None, LedgerStatus::Succeeded) => Tone::Good,
        (Some(OutboxStatus::Sending), _) => Tone::Busy,
        (Some(OutboxStatus::Pending | OutboxStatus::Failed), _)
        | (None, LedgerStatus::Accepted) => Tone::Waiting,
        (Some(OutboxStatus::Aborted), _) | (None, LedgerStatus::Failed) => Tone::Bad,
    };
    let error = outbox.into_iter().flat_map(|outbox| {
        let words = [&outbox.last_error_code, &outbox.last_error_msg];
        words.into_iter().flatten().map(String::as_str)
    });
    ItemSummary {
        summary: about.join(" "),
        state: status.map_or("finished".to_owned(), |status| status.to_string()),
        tone,
        progress: None,
        failed_attempts: outbox.map_or(0, |outbox| i64::from(outbox.attempts)),
        remark: error.collect::<Vec<_>>().join(": "),
        accepted_at: row.accepted_at,
        id: row.view.idempotency_key,
    }
}
