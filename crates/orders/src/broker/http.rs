//! A broker behind HTTP: `POST {url}/orders`, `GET {url}/orders/{client_order_id}`.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use postrider_engine::breaker;
use reqwest::{Client, Response, StatusCode, header, redirect};
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc2822};
use url::Url;

use super::{Broker, Kind, Refusal, taken};

/// No broker has more to say about one order.
const LONGEST_ANSWER: usize = 256 * 1024;

/// However long a broker asks us to wait, it is asked again after this.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

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
#[error(
    "no connection to the broker can be prepared; check orders.broker.url and the machine's TLS setup"
)]
pub struct Unusable(#[from] reqwest::Error);

/// The adapter.
pub struct HttpBroker {
    client: Client,
    base: String,
    token: Option<String>,
}

impl HttpBroker {
    /// Prepares a client; calls nobody yet.
    pub fn new(settings: HttpSettings) -> Result<Self, Unusable> {
        let client = Client::builder()
            .timeout(settings.timeout)
            // A redirected POST may be made twice or become a GET: the address must be the right one.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self {
            client,
            base: settings.url.as_str().trim_end_matches('/').to_owned(),
            token: settings.token,
        })
    }

    async fn post(&self, order: Value) -> Result<Value, Refusal> {
        let request = self.client.post(format!("{}/orders", self.base));
        let response = self.call(request.json(&order)).await?;
        let status = response.status();
        if status.is_success() {
            return taken(body(response).await?);
        }
        let retry_after = retry_after(&response);
        if !status.is_client_error() || is_transient(status) {
            // A time-out that the broker itself reports says nothing about what it did before.
            let certain = matches!(status.as_u16(), 425 | 429);
            let kind = if certain {
                Kind::NotTaken
            } else {
                Kind::Uncertain
            };
            return Err(Refusal::status(status.as_u16(), kind, retry_after));
        }
        let said = body(response).await.unwrap_or_default();
        let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
        let reason = text("reason_code").unwrap_or_else(|| status.as_u16().to_string());
        let message = text("message")
            .or_else(|| text("detail"))
            .unwrap_or_else(|| format!("the broker rejected the order with status {status}"));
        Err(Refusal::rejected(&reason, &message))
    }

    async fn get(&self, client_order_id: &str) -> Result<Option<Value>, Refusal> {
        let mut url = Url::parse(&format!("{}/orders/", self.base))
            .map_err(|error| Refusal::network("NETWORK_ERROR", Kind::Uncertain, error))?;
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push(client_order_id);
        }
        let response = self.call(self.client.get(url)).await?;
        let status = response.status();
        if status.is_success() {
            return body(response).await.and_then(taken).map(Some);
        }
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        // Whatever else it says, it did not say that it has not got the order.
        let wait = retry_after(&response);
        Err(Refusal::status(status.as_u16(), Kind::Uncertain, wait))
    }

    async fn call(&self, request: reqwest::RequestBuilder) -> Result<Response, Refusal> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        request.send().await.map_err(lost)
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

const fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429)
}

/// The answer's JSON. One that breaks off or can't be read came from a broker that may well have the order.
async fn body(mut response: Response) -> Result<Value, Refusal> {
    let unreadable = |why: &str| Refusal {
        shows: breaker::Outcome::Answered,
        ..Refusal::network(
            "UNREADABLE_ANSWER",
            Kind::Uncertain,
            format!("the broker's answer {why}"),
        )
    };
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > LONGEST_ANSWER {
            return Err(unreadable("is too long"));
        }
    }
    serde_json::from_slice(&bytes).map_err(|_| unreadable("is no JSON"))
}

/// A call without an answer. If not even a connection was made, nothing can have arrived.
fn lost(error: reqwest::Error) -> Refusal {
    let kind = if error.is_connect() {
        Kind::NotTaken
    } else {
        Kind::Uncertain
    };
    let code = if error.is_timeout() {
        "NETWORK_TIMEOUT"
    } else {
        "NETWORK_ERROR"
    };
    let error = error.without_url();
    let mut message = format!("the broker gave no answer: {error}");
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    Refusal::network(code, kind, message)
}

/// Whole seconds or a date, as the standard allows.
fn retry_after(response: &Response) -> Option<Duration> {
    let text = response
        .headers()
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = OffsetDateTime::parse(&text.replace("GMT", "+0000"), &Rfc2822).ok()?;
            Duration::try_from(at - OffsetDateTime::now_utc()).ok()?
        }
    };
    Some(wait.min(LONGEST_WAIT))
}
