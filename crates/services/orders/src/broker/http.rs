//! A broker behind HTTP: `POST {url}/orders`, `GET {url}/orders/{client_order_id}`.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use postrider::breaker;
use postrider_web::http_client::{self, Lost, Unprepared, Unread, is_transient, retry_after};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use url::Url;

use super::{Broker, Kind, Refusal, taken};

/// No broker has more to say about one order.
const LONGEST_ANSWER: usize = 256 * 1024;

/// Where the broker is and how to speak to it.
#[derive(Clone)]
pub struct HttpSettings {
    /// The address in front of `/orders`.
    pub url: Url,
    /// Shown as a bearer token.
    pub token: Option<String>,
    /// The longest that one call may take.
    pub timeout: Duration,
}

/// The settings make no usable client.
#[derive(Debug, thiserror::Error)]
#[error("no connection to the broker can be prepared")]
pub struct Unusable(#[from] Unprepared);

/// The adapter.
pub struct HttpBroker {
    client: Client,
    base: Url,
    token: Option<String>,
}

impl HttpBroker {
    /// Prepares a client; calls nobody yet.
    pub fn new(settings: HttpSettings) -> Result<Self, Unusable> {
        Ok(Self {
            client: http_client::client(settings.timeout)?,
            base: settings.url,
            token: settings.token,
        })
    }

    async fn post(&self, order: Value) -> Result<Value, Refusal> {
        let url = self.address(&["orders"])?;
        let response = self.call(self.client.post(url).json(&order)).await?;
        let status = response.status();
        if status.is_success() {
            return taken(body(response).await?);
        }
        let wait = retry_after(response.headers());
        if !status.is_client_error() || is_transient(status) {
            // A time-out that the broker itself reports says nothing about what it did before.
            let kind = match status.as_u16() {
                425 | 429 => Kind::NotTaken,
                _ => Kind::Uncertain,
            };
            return Err(Refusal::status(status.as_u16(), kind, wait));
        }
        // Only a broker that gives its reason speaks about the order. What else answers with a 4xx (a gateway, a wrong
        // address, a token that has run out) would answer so to every order, and must not end them all.
        let said = body(response).await.unwrap_or_default();
        let text = |name: &str| said.get(name).and_then(Value::as_str);
        match text("reason_code").filter(|reason| !reason.is_empty()) {
            Some(reason) => {
                let message = text("message").or_else(|| text("detail")).map_or_else(
                    || format!("the broker rejected the order with status {status}"),
                    str::to_owned,
                );
                Err(Refusal::rejected(reason, &message))
            }
            None if is_about_us(status) => Err(Refusal::not_let_in(status.as_u16(), wait)),
            None => Err(Refusal::status(status.as_u16(), Kind::NotTaken, wait)),
        }
    }

    async fn get(&self, client_order_id: &str) -> Result<Option<Value>, Refusal> {
        let url = self.address(&["orders", client_order_id])?;
        let response = self.call(self.client.get(url)).await?;
        let status = response.status();
        if status.is_success() {
            return body(response).await.and_then(taken).map(Some);
        }
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        // Whatever else it says, it did not say that it has not got the order.
        let wait = retry_after(response.headers());
        Err(if is_about_us(status) {
            Refusal::not_let_in(status.as_u16(), wait)
        } else {
            Refusal::status(status.as_u16(), Kind::Uncertain, wait)
        })
    }

    fn address(&self, segments: &[&str]) -> Result<Url, Refusal> {
        http_client::below(&self.base, segments).ok_or_else(|| {
            Refusal::rejected(
                "UNSENDABLE_KEY",
                "the idempotency_key can't be part of an address at the broker",
            )
        })
    }

    async fn call(&self, request: reqwest::RequestBuilder) -> Result<Response, Refusal> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        request.send().await.map_err(|error| lost(error.into()))
    }
}

impl Broker for HttpBroker {
    fn name(&self) -> &'static str {
        "http"
    }

    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, Refusal>> {
        self.post(order).boxed()
    }

    fn look_up<'a>(
        &'a self,
        client_order_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Refusal>> {
        self.get(client_order_id).boxed()
    }
}

/// The broker, or what stands before it, does not let us in: that is no word about an order.
const fn is_about_us(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407)
}

/// The answer's JSON. One that breaks off or can't be read came from a broker that may well have the order.
async fn body(response: Response) -> Result<Value, Refusal> {
    let unreadable = |why: &str| Refusal {
        shows: breaker::Outcome::Answered,
        ..Refusal::network(
            "UNREADABLE_ANSWER",
            Kind::Uncertain,
            format!("the broker's answer {why}"),
        )
    };
    let bytes = match http_client::body(response, LONGEST_ANSWER).await {
        Ok(bytes) => bytes,
        Err(Unread::Lost(error)) => return Err(lost(error)),
        Err(Unread::TooLong { .. }) => return Err(unreadable("is too long")),
    };
    serde_json::from_slice(&bytes).map_err(|_| unreadable("is no JSON"))
}

/// A call without an answer. If not even a connection was made, nothing can have arrived.
fn lost(lost: Lost) -> Refusal {
    let kind = if lost.may_have_arrived {
        Kind::Uncertain
    } else {
        Kind::NotTaken
    };
    let message = format!("the broker gave no answer: {}", lost.message);
    Refusal::network(lost.code, kind, message)
}
