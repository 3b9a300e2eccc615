//! A simulated trading broker: one client order id is one order, however often it is sent.
//!
//! `POST /orders` and `GET /orders/{client_order_id}` are the broker's API; `GET /orders` lists what it has accepted,
//! and `PUT /script` replaces its fault script. It also implements [`Broker`] directly, for tests without a socket.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_orders::broker::{Broker, BrokerError, ErrorKind};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Action, Call, FaultScript, Rule,
    faults::{delay, hang_up, status},
    lock,
};

/// An order that the broker has accepted.
#[derive(Debug, Clone, Serialize)]
pub struct AcceptedOrder {
    /// The broker's own id of it.
    pub broker_order_id: String,
    /// How often it was sent and accepted.
    pub posts: u32,
    /// The first request.
    pub request: Value,
    /// The broker denies that it knows it.
    pub forgotten: bool,
}

#[derive(Default)]
struct Records {
    orders: BTreeMap<String, AcceptedOrder>,
    calls: BTreeMap<String, u32>,
}

/// A broker that accepts every order unless its script says otherwise.
#[derive(Default)]
pub struct SimulatedBroker {
    script: FaultScript,
    records: Mutex<Records>,
}

/// What the broker answers to an order.
enum Answer {
    Accepted(Value),
    Rejected(String),
    NotOk(String),
    Status(u16, Option<u64>),
    HangUp,
}

impl SimulatedBroker {
    /// A broker with injected faults as this script says.
    #[must_use]
    pub fn new(script: FaultScript) -> Self {
        Self {
            script,
            records: Mutex::default(),
        }
    }

    /// Its fault script.
    #[must_use]
    pub const fn script(&self) -> &FaultScript {
        &self.script
    }

    /// Every accepted order, by client order id.
    #[must_use]
    pub fn orders(&self) -> BTreeMap<String, AcceptedOrder> {
        lock(&self.records).orders.clone()
    }

    /// The number of calls about each client order id, whatever the answer.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u32> {
        lock(&self.records).calls.clone()
    }

    async fn submit(&self, order: Value) -> Answer {
        let Some(id) = order["client_order_id"].as_str().map(str::to_owned) else {
            return Answer::Rejected("CLIENT_ORDER_ID_MISSING".to_owned());
        };
        let action = self.script.decide(&Call {
            symbol: order["symbol"].as_str(),
            number: self.record_call(&id),
            ..Call::default()
        });
        match action {
            Action::Reject { reason_code } => Answer::Rejected(reason_code),
            Action::NotOk { reason_code } => Answer::NotOk(reason_code),
            Action::Fail {
                status,
                retry_after,
            } => Answer::Status(status, retry_after),
            Action::Stall { delay: wait } => {
                delay(wait).await;
                Answer::Status(503, None)
            }
            Action::Accept => Answer::Accepted(self.accept(id, order, false)),
            Action::Forget => Answer::Accepted(self.accept(id, order, true)),
            Action::Slow { delay: wait } => {
                delay(wait).await;
                Answer::Accepted(self.accept(id, order, false))
            }
            Action::FailAfter { status } => {
                self.accept(id, order, false);
                Answer::Status(status, None)
            }
            Action::HangUp => {
                self.accept(id, order, false);
                Answer::HangUp
            }
        }
    }

    fn find(&self, id: &str) -> Option<Value> {
        self.record_call(id);
        let records = lock(&self.records);
        let order = records.orders.get(id).filter(|order| !order.forgotten)?;
        Some(receipt(&order.broker_order_id))
    }

    fn record_call(&self, id: &str) -> u32 {
        let mut records = lock(&self.records);
        let calls = records.calls.entry(id.to_owned()).or_default();
        *calls += 1;
        *calls
    }

    fn accept(&self, id: String, request: Value, forgotten: bool) -> Value {
        let orders = &mut lock(&self.records).orders;
        let number = orders.len() + 1;
        let order = orders.entry(id).or_insert_with(|| AcceptedOrder {
            broker_order_id: format!("paper-{number}"),
            posts: 0,
            request,
            forgotten,
        });
        order.posts += 1;
        receipt(&order.broker_order_id)
    }
}

fn receipt(broker_order_id: &str) -> Value {
    json!({ "broker_order_id": broker_order_id, "status": "ok" })
}

impl Broker for SimulatedBroker {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, BrokerError>> {
        async move {
            match self.submit(order).await {
                Answer::Accepted(receipt) => Ok(receipt),
                Answer::Rejected(reason) => {
                    let message = "the simulated broker rejected the order";
                    Err(BrokerError::rejected(&reason, message))
                }
                Answer::NotOk(reason) => Err(BrokerError::not_accepted(&reason)),
                Answer::Status(status, wait) => {
                    let wait = wait.map(Duration::from_secs);
                    Err(BrokerError::status(status, ErrorKind::Uncertain, wait))
                }
                Answer::HangUp => {
                    let message = "the simulated broker broke the connection";
                    Err(BrokerError::network(
                        "NETWORK_ERROR",
                        ErrorKind::Uncertain,
                        message,
                    ))
                }
            }
        }
        .boxed()
    }

    fn find<'a>(
        &'a self,
        client_order_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, BrokerError>> {
        async move { Ok(self.find(client_order_id)) }.boxed()
    }
}

/// The routes of a simulated broker.
pub fn routes(broker: Arc<SimulatedBroker>) -> Router {
    Router::new()
        .route("/orders", post(submit).get(list))
        .route("/orders/{client_order_id}", get(find))
        .route("/script", put(replace_script))
        .with_state(broker)
}

async fn submit(State(broker): State<Arc<SimulatedBroker>>, Json(order): Json<Value>) -> Response {
    match broker.submit(order).await {
        Answer::Accepted(receipt) => (StatusCode::CREATED, Json(receipt)).into_response(),
        Answer::Rejected(reason) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            Json(json!({ "reason_code": reason })),
        )
            .into_response(),
        Answer::NotOk(reason) => {
            Json(json!({ "status": "error", "reason_code": reason })).into_response()
        }
        Answer::Status(code, retry_after) => status(code, retry_after),
        Answer::HangUp => hang_up(),
    }
}

async fn find(State(broker): State<Arc<SimulatedBroker>>, Path(id): Path<String>) -> Response {
    match broker.find(&id) {
        Some(receipt) => Json(receipt).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn list(State(broker): State<Arc<SimulatedBroker>>) -> Json<Value> {
    Json(json!({ "orders": broker.orders() }))
}

async fn replace_script(
    State(broker): State<Arc<SimulatedBroker>>,
    Json(rules): Json<Vec<Rule>>,
) -> StatusCode {
    broker.script.replace(rules);
    StatusCode::NO_CONTENT
}
