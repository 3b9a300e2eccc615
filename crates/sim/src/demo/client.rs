//! A careful client of the five APIs: it retries a request with an idempotency key until it gets an answer, and sends
//! one without a key only once.

use std::{net::SocketAddr, time::Duration};

use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;
use tokio::time::Instant;

use super::{Error, chain};

/// The timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a request is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(120);

/// The delay between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The client.
#[derive(Debug, Clone)]
pub struct ApiClient {
    http: Client,
    base: String,
}

impl ApiClient {
    /// A client of the API at this address.
    pub fn new(address: SocketAddr) -> Result<Self, Error> {
        let http = Client::builder()
            .timeout(CALL_TIMEOUT)
            // The API is on this machine, whatever proxy the environment names.
            .no_proxy()
            .build()
            .map_err(|e| Error::caused("can't create an HTTP client", &e))?;
        Ok(Self {
            http,
            base: format!("http://{address}"),
        })
    }

    /// Starts a request.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    /// Reads a resource.
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        self.retry(|| self.request(Method::GET, path)).await
    }

    /// Posts a request that is safe to retry: it has a key, or asks for something that can only happen once.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Error> {
        self.retry(|| self.request(Method::POST, path).json(body))
            .await
    }

    /// Retries a request until it gets an answer other than "try again later".
    pub async fn retry(&self, make: impl Fn() -> RequestBuilder) -> Result<Value, Error> {
        let deadline = Instant::now() + RETRY_TIMEOUT;
        loop {
            match call(make()).await {
                Err(CallError::Transient(why)) if Instant::now() > deadline => {
                    return Err(Error::failed(format!("the API does not answer: {why}")));
                }
                Err(CallError::Transient(_)) => tokio::time::sleep(RETRY_DELAY).await,
                Err(CallError::Rejected(why)) => return Err(Error::failed(why)),
                Ok(value) => return Ok(value),
            }
        }
    }

    /// Sends a request once.
    pub async fn once(&self, request: RequestBuilder) -> Result<Value, Error> {
        call(request).await.map_err(|error| {
            let (CallError::Transient(why) | CallError::Rejected(why)) = error;
            Error::failed(why)
        })
    }
}

enum CallError {
    /// A network or server error: the same request may succeed later.
    Transient(String),
    /// The server rejected it.
    Rejected(String),
}

async fn call(request: RequestBuilder) -> Result<Value, CallError> {
    let lost = |e: reqwest::Error| CallError::Transient(chain(&e));
    let response = request.send().await.map_err(lost)?;
    let (status, path) = (response.status(), response.url().path().to_owned());
    let text = response.text().await.map_err(lost)?;
    if status.is_success() {
        return serde_json::from_str(&text)
            .map_err(|e| CallError::Rejected(format!("{path} did not answer with JSON: {e}")));
    }
    let message = format!("{path} answered {status}: {text}");
    if status.is_server_error() || status.as_u16() == 429 {
        Err(CallError::Transient(message))
    } else {
        Err(CallError::Rejected(message))
    }
}
