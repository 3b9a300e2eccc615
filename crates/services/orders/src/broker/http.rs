//! A broker over HTTP: `POST {url}/orders`, `GET {url}/orders/{client_order_id}`.

use futures_util::{FutureExt, future::BoxFuture};
use postrider::breaker;
use postrider_web::http_client::{
    self, BodyError, ClientError, Endpoint, EndpointClient, NoResponse, is_transient, retry_after,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use super::{Broker, BrokerError, ErrorKind, check_accepted};

/// Maximum size of a response body, in bytes.
const MAX_RESPONSE: usize = 256 * 1024;

/// A broker over HTTP.
pub struct HttpBroker {
    client: EndpointClient,
}

impl HttpBroker {
    /// A broker at this endpoint. Makes no call yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, ClientError> {
        let client = endpoint.client()?;
        Ok(Self { client })
    }

    async fn post(&self, order: Value) -> Result<Value, BrokerError> {
        let request = self.request(Method::POST, &["orders"])?.json(&order);
        let response = call(request).await?;
        let status = response.status();
        if status.is_success() {
            return check_accepted(body(response).await?);
        }
        let wait = retry_after(response.headers());
        if !status.is_client_error() || is_transient(status) {
            // A timeout that the broker reports says nothing about what it did before.
            let kind = match status.as_u16() {
                425 | 429 => ErrorKind::NotAccepted,
                _ => ErrorKind::Uncertain,
            };
            return Err(BrokerError::status(status.as_u16(), kind, wait));
        }
        // Only a 4xx with a reason code is about the order. Any other 4xx (a gateway, a wrong URL, an expired token) would
        // come for every order and must not abort them all.
        let details = body(response).await.unwrap_or_default();
        let text = |name: &str| details.get(name).and_then(Value::as_str);
        match text("reason_code").filter(|reason| !reason.is_empty()) {
            Some(reason) => {
                let message = text("message").or_else(|| text("detail")).map_or_else(
                    || format!("the broker rejected the order with status {status}"),
                    str::to_owned,
                );
                Err(BrokerError::rejected(reason, &message))
            }
            None if is_unauthorized(status) => {
                Err(BrokerError::unauthorized(status.as_u16(), wait))
            }
            None => Err(BrokerError::status(
                status.as_u16(),
                ErrorKind::NotAccepted,
                wait,
            )),
        }
    }

    async fn get(&self, client_order_id: &str) -> Result<Option<Value>, BrokerError> {
        let request = self.request(Method::GET, &["orders", client_order_id])?;
        let response = call(request).await?;
        let status = response.status();
        if status.is_success() {
            return body(response).await.and_then(check_accepted).map(Some);
        }
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        // Anything else doesn't say that the broker lacks the order.
        let wait = retry_after(response.headers());
        Err(if is_unauthorized(status) {
            BrokerError::unauthorized(status.as_u16(), wait)
        } else {
            BrokerError::status(status.as_u16(), ErrorKind::Uncertain, wait)
        })
    }

    fn request(&self, method: Method, segments: &[&str]) -> Result<RequestBuilder, BrokerError> {
        self.client.request(method, segments).ok_or_else(|| {
            BrokerError::rejected(
                "UNSENDABLE_KEY",
                "the idempotency_key can't be part of a URL at the broker",
            )
        })
    }
}

async fn call(request: RequestBuilder) -> Result<Response, BrokerError> {
    request
        .send()
        .await
        .map_err(|error| no_response(error.into()))
}

impl Broker for HttpBroker {
    fn name(&self) -> &'static str {
        "http"
    }

    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, BrokerError>> {
        self.post(order).boxed()
    }

    fn find<'a>(
        &'a self,
        client_order_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, BrokerError>> {
        self.get(client_order_id).boxed()
    }
}

/// The broker, or a gateway in front of it, refuses our credentials, which says nothing about an order.
const fn is_unauthorized(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407)
}

/// The response's JSON. If it is incomplete or unreadable, the broker may well have the order.
async fn body(response: Response) -> Result<Value, BrokerError> {
    let unreadable = |why: &str| BrokerError {
        health: breaker::Outcome::Answered,
        ..BrokerError::network(
            "UNREADABLE_ANSWER",
            ErrorKind::Uncertain,
            format!("the broker's response {why}"),
        )
    };
    let bytes = match http_client::body(response, MAX_RESPONSE).await {
        Ok(bytes) => bytes,
        Err(BodyError::NoResponse(error)) => return Err(no_response(error)),
        Err(BodyError::TooLarge { .. }) => return Err(unreadable("is too long")),
    };
    serde_json::from_slice(&bytes).map_err(|_| unreadable("is not JSON"))
}

/// A call without a response. If no connection was made, nothing can have arrived.
fn no_response(error: NoResponse) -> BrokerError {
    let kind = if error.may_have_arrived {
        ErrorKind::Uncertain
    } else {
        ErrorKind::NotAccepted
    };
    let message = format!("no response from the broker: {}", error.message);
    BrokerError::network(error.code, kind, message)
}
