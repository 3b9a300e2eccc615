//! The trading broker: the simulator of orders, with a log of every call in front of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use postrider_orders::broker::{Booked, PaperBroker, Script, simulator};
use serde_json::{Value, json};

use super::{lock, rules};
use crate::exit::Failure;

/// The symbol that is not listed yet.
pub const UNLISTED: &str = "NEWCO";

/// No order is longer.
const LONGEST: usize = 64 * 1024;

/// The broker and its log.
pub struct Broker {
    paper: Arc<PaperBroker>,
    calls: Mutex<BTreeMap<String, u32>>,
}

impl Broker {
    /// A broker that does not know the new symbol.
    pub fn new() -> Result<Self, Failure> {
        Ok(Self {
            paper: Arc::new(PaperBroker::in_memory(Script::new(rules(script(false))?))),
            calls: Mutex::default(),
        })
    }

    /// From now on it knows the new symbol.
    pub fn list(&self) -> Result<(), Failure> {
        self.paper.script().replace(rules(script(true))?);
        Ok(())
    }

    /// Every order that it has taken, by client order id, with how often it was handed over.
    pub fn booked(&self) -> BTreeMap<String, Booked> {
        self.paper.booked()
    }

    /// How often it was called about each order, whatever it said.
    pub fn calls(&self) -> BTreeMap<String, u32> {
        lock(&self.calls).clone()
    }
}

/// Most orders take a moment; some fail before they are taken, and some are taken although it looks like a failure.
fn script(listed: bool) -> Value {
    let mut rules = vec![
        json!({ "every": 7, "do": { "fail": { "status": 503 } } }),
        json!({ "every": 9, "do": "hang_up" }),
        json!({ "every": 13, "do": { "fail_after": { "status": 500 } } }),
        json!({ "do": { "slow": { "for": "150ms" } } }),
    ];
    if !listed {
        let reject = json!({ "reject": { "reason_code": "UNKNOWN_SYMBOL" } });
        rules.insert(0, json!({ "symbol": UNLISTED, "do": reject }));
    }
    Value::Array(rules)
}

/// The broker's routes.
pub fn routes(broker: Arc<Broker>) -> Router {
    simulator(Arc::clone(&broker.paper)).layer(from_fn_with_state(broker, note))
}

/// Writes down which order a call is about, and lets it pass.
async fn note(State(broker): State<Arc<Broker>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LONGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let order = if parts.method == Method::POST {
        let order: Value = serde_json::from_slice(&body).unwrap_or_default();
        order["client_order_id"].as_str().map(str::to_owned)
    } else {
        let (_, id) = parts.uri.path().rsplit_once('/').unwrap_or_default();
        Some(id.to_owned())
    };
    if let Some(order) = order {
        *lock(&broker.calls).entry(order).or_default() += 1;
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}
