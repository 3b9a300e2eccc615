//! Callbacks: report a payment's result to the requests' side.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use postrider::{
    breaker,
    failure::{Category, Failure},
};
use postrider_web::http_client::{self, ClientError, Endpoint, EndpointClient, NoResponse};
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::PgPool;

use super::{deduction::PaymentResult, timed_out};
use crate::{PaymentError, model, requests};

/// Deadline of a local callback.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives the results of payments.
pub trait Callback: Send + Sync + 'static {
    /// Reports a result. A permanent failure means that a retry won't help.
    fn report<'a>(&'a self, result: &'a PaymentResult) -> BoxFuture<'a, Result<(), Failure>>;
}

/// What a callback's result says about the receiver's health.
pub(crate) fn classify(reported: &Result<(), Failure>) -> breaker::Outcome {
    match reported {
        Err(failure) if failure.category() == Category::Network => breaker::Outcome::Unavailable,
        Ok(()) | Err(_) => breaker::Outcome::Answered,
    }
}

/// Settles payments in this process, without a network.
#[derive(Debug, Clone)]
pub struct LocalCallback {
    pool: PgPool,
}

impl LocalCallback {
    /// Settles the requests in the database of this pool.
    #[must_use]
    pub const fn new(pool: PgPool) -> Self {
        Self { pool }
    }
}

impl Callback for LocalCallback {
    fn report<'a>(&'a self, result: &'a PaymentResult) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            let reason = result.reason.as_deref();
            let settle = requests::settle(&self.pool, result.uuid, result.outcome, reason);
            let settled = tokio::time::timeout(CALL_TIMEOUT, settle).await;
            match settled.unwrap_or_else(|_| Err(timed_out().into())) {
                Ok(()) => Ok(()),
                Err(PaymentError::Settled { .. }) => Err(rejected(StatusCode::CONFLICT)),
                Err(PaymentError::NotFound) => Err(rejected(StatusCode::NOT_FOUND)),
                Err(error) => {
                    let failure = Failure::from_error("NETWORK_ERROR", &error);
                    Err(Failure::with_category(
                        failure.code(),
                        Category::Network,
                        failure.message(),
                    ))
                }
            }
        }
        .boxed()
    }
}

/// Maximum size of a response body, in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// Sends results over HTTP: `PUT {url}/internal/requests/{uuid}`.
#[derive(Debug, Clone)]
pub struct HttpCallback {
    client: EndpointClient,
}

impl HttpCallback {
    /// Sends results to this endpoint. Makes no call yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, ClientError> {
        let client = endpoint.client()?;
        Ok(Self { client })
    }

    async fn put(&self, result: &PaymentResult) -> Result<(), Failure> {
        let uuid = result.uuid.to_string();
        let path = ["internal", "requests", uuid.as_str()];
        let request = self.client.request(Method::PUT, &path).ok_or_else(|| {
            let text = "payments.callback.url can't be extended by a path";
            Failure::with_category("INVALID_URL", Category::System, text)
        })?;
        let body = json!({ "status": result.outcome, "reason": result.reason });
        let mut request = request.json(&body);
        if let Some(trace) = &result.trace {
            request = request.header(model::PARENT, trace.parent());
            if let Some(state) = trace.state() {
                request = request.header(model::STATE, state);
            }
        }
        let response = request.send().await.map_err(no_response)?;
        let status = response.status();
        if !status.is_success() {
            return Err(rejected(status));
        }
        // The status is enough; reading the body to the end lets the connection be reused.
        let _ = http_client::body(response, MAX_RESPONSE).await;
        Ok(())
    }
}

impl Callback for HttpCallback {
    fn report<'a>(&'a self, result: &'a PaymentResult) -> BoxFuture<'a, Result<(), Failure>> {
        self.put(result).boxed()
    }
}

/// Classifies a rejected callback: a response about this payment is final, anything else can be fixed.
fn rejected(status: StatusCode) -> Failure {
    let (category, why) = match status {
        StatusCode::NOT_FOUND => (Category::Data, "the payment is unknown there"),
        StatusCode::CONFLICT => (
            Category::Data,
            "the payment was settled with the opposite outcome there",
        ),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            (Category::System, "check payments.callback.token")
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            (Category::Network, "the receiver is overloaded")
        }
        _ => (Category::System, "see the receiver's log"),
    };
    let text = format!("the callback was answered with status {status}: {why}");
    Failure::with_category(status.as_str(), category, text)
}

/// A call without a response.
fn no_response(error: reqwest::Error) -> Failure {
    let error = NoResponse::from(error);
    Failure::with_category(error.code, Category::Network, error.message)
}
