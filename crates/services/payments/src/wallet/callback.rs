//! The way back: telling the orchestrator how a payment ended.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use postrider::{
    breaker,
    failure::{Category, Failure},
};
use postrider_web::http_client::{self, Lost, Unprepared};
use reqwest::{Client, StatusCode};
use serde_json::json;
use sqlx::PgPool;
use url::Url;
use uuid::Uuid;

use crate::{
    model::{self, Outcome, TraceContext},
    service,
    store::Told,
};

/// How a payment ended, in the words of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Which payment.
    pub uuid: Uuid,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed.
    pub reason: Option<String>,
    /// The trace that it is part of.
    pub trace: Option<TraceContext>,
}

/// Somebody who wants to know how payments end.
pub trait Callback: Send + Sync + 'static {
    /// Tells it. A permanent failure means that telling again won't help.
    fn tell<'a>(&'a self, ending: &'a Ending) -> BoxFuture<'a, Result<(), Failure>>;
}

/// What a failed call shows about the receiver.
pub(crate) fn shows(told: &Result<(), Failure>) -> breaker::Outcome {
    match told {
        Err(failure) if failure.category() == Category::Network => breaker::Outcome::Unavailable,
        Ok(()) | Err(_) => breaker::Outcome::Answered,
    }
}

/// The orchestrator of this very process, reached without a network.
#[derive(Debug, Clone)]
pub struct Direct {
    pool: PgPool,
}

impl Direct {
    /// The orchestrator whose requests are in the database of this pool.
    #[must_use]
    pub const fn new(pool: PgPool) -> Self {
        Self { pool }
    }
}

impl Callback for Direct {
    fn tell<'a>(&'a self, ending: &'a Ending) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            let reason = ending.reason.as_deref();
            match service::settle(&self.pool, ending.uuid, ending.outcome, reason).await {
                Ok(Told::Settled | Told::Repeated) => Ok(()),
                Ok(Told::Contradicted(_)) => Err(refused(StatusCode::CONFLICT)),
                Ok(Told::Unknown) => Err(refused(StatusCode::NOT_FOUND)),
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

/// Where the orchestrator is and how to speak to it.
#[derive(Clone)]
pub struct HttpSettings {
    /// The address in front of `/internal/requests`.
    pub url: Url,
    /// Shown as a bearer token.
    pub token: Option<String>,
    /// The longest that one call may take.
    pub timeout: Duration,
}

/// An answer says no more than this.
const LONGEST_ANSWER: usize = 64 * 1024;

/// An orchestrator behind HTTP: `PUT {url}/internal/requests/{uuid}`.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    url: Url,
    token: Option<String>,
}

impl Http {
    /// Prepares a client; calls nobody yet.
    pub fn new(settings: HttpSettings) -> Result<Self, Unprepared> {
        Ok(Self {
            client: http_client::client(settings.timeout)?,
            url: settings.url,
            token: settings.token,
        })
    }

    async fn put(&self, ending: &Ending) -> Result<(), Failure> {
        let uuid = ending.uuid.to_string();
        let path = ["internal", "requests", uuid.as_str()];
        let url = http_client::below(&self.url, &path).ok_or_else(|| {
            let text = "payments.callback.url has no room for a path";
            Failure::with_category("INVALID_URL", Category::System, text)
        })?;
        let body = json!({ "status": ending.outcome, "reason": ending.reason });
        let mut request = self.client.put(url).json(&body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(trace) = &ending.trace {
            request = request.header(model::PARENT, trace.parent());
            if let Some(state) = trace.state() {
                request = request.header(model::STATE, state);
            }
        }
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        if !status.is_success() {
            return Err(refused(status));
        }
        // The status has said it; reading to the end lets the connection be used again.
        let _ = http_client::body(response, LONGEST_ANSWER).await;
        Ok(())
    }
}

impl Callback for Http {
    fn tell<'a>(&'a self, ending: &'a Ending) -> BoxFuture<'a, Result<(), Failure>> {
        self.put(ending).boxed()
    }
}

/// What a refusal means: an answer about this payment stays, a wrong token or a fault can be mended.
fn refused(status: StatusCode) -> Failure {
    let (category, why) = match status {
        StatusCode::NOT_FOUND => (Category::Data, "it knows no such payment"),
        StatusCode::CONFLICT => (Category::Data, "the payment has ended the other way there"),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            (Category::System, "check payments.callback.token")
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            (Category::Network, "it has no room at the moment")
        }
        _ => (Category::System, "see its log"),
    };
    let text = format!("the orchestrator answered with status {status}: {why}");
    Failure::with_category(status.as_str(), category, text)
}

/// A call without an answer.
fn lost(error: reqwest::Error) -> Failure {
    let lost = Lost::from(error);
    Failure::with_category(lost.code, Category::Network, lost.message)
}
