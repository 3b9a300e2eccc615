//! A stage behind HTTP: `POST {url}` with the request as JSON.
//!
//! 2xx with criteria is success; 4xx is permanent, except 408, 425 and 429; everything else is transient. A service that
//! can't be reached, times out or is overloaded (429, 502, 503, 504) is unavailable.

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use postrider::failure::{Category, Failure, storable};
use postrider_web::http_client::{
    self, BodyError, ClientError, Endpoint, EndpointClient, NoResponse,
};
use reqwest::{Method, Response};
use serde::Deserialize;

use super::{Request, Stage, StageError};
use crate::model::{Criterion, Step};

/// Maximum size of a response.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// Maximum number of criteria in a response.
const MAX_CRITERIA: usize = 10_000;

/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 20_000;

/// A stage behind HTTP.
pub struct HttpStage {
    client: EndpointClient,
    step: Step,
}

#[derive(Deserialize)]
struct StageResponse {
    criteria: Vec<Criterion>,
}

impl HttpStage {
    /// The stage at this endpoint. Makes no call yet.
    pub fn new(step: Step, endpoint: Endpoint) -> Result<Self, ClientError> {
        let client = endpoint.client()?;
        Ok(Self { client, step })
    }

    async fn post(&self, request: Request) -> Result<Vec<Criterion>, StageError> {
        let name = self.step.name();
        // The same on every attempt of a try, so that the service can detect repeats.
        let key = format!("{}-{}-{name}", request.protocol_id, request.try_no);
        let response = self
            .client
            .base_request(Method::POST)
            .header("idempotency-key", key)
            .json(&request)
            .send()
            .await
            .map_err(|error| self.lost(&error.into()))?;
        let status = response.status().as_u16();
        match status {
            200..=299 => self.read(response).await,
            400..=499 if !matches!(status, 408 | 425 | 429) => {
                let body = self.body(response).await.unwrap_or_default();
                let body = storable(String::from_utf8_lossy(&body).trim(), 500);
                Err(StageError::permanent(
                    "stage_rejected",
                    &status.to_string(),
                    format!(
                        "the {name} service rejected the protocol with status {status}: {body}"
                    ),
                ))
            }
            _ => {
                let message = format!("the {name} service answered with status {status}");
                let retry_after = http_client::retry_after(response.headers());
                let category = Category::from_status(status);
                let failure = Failure::with_category(&status.to_string(), category, message);
                let error = match status {
                    429 | 502 | 503 | 504 => StageError::unavailable(failure),
                    _ => StageError::transient(failure),
                };
                Err(StageError {
                    retry_after,
                    ..error
                })
            }
        }
    }

    async fn read(&self, response: Response) -> Result<Vec<Criterion>, StageError> {
        let body = self.body(response).await?;
        let answer: StageResponse = serde_json::from_slice(&body).map_err(|error| {
            self.unreadable(&format!("expected {{\"criteria\": […]}}: {error}"))
        })?;
        if answer.criteria.len() > MAX_CRITERIA {
            return Err(self.unreadable("it has too many criteria"));
        }
        Ok(answer
            .criteria
            .into_iter()
            .map(storable_criterion)
            .collect())
    }

    async fn body(&self, response: Response) -> Result<Bytes, StageError> {
        match http_client::body(response, MAX_RESPONSE_BYTES).await {
            Ok(body) => Ok(body),
            Err(BodyError::NoResponse(lost)) => Err(self.lost(&lost)),
            Err(error @ BodyError::TooLarge { .. }) => Err(self.unreadable(&error.to_string())),
        }
    }

    fn unreadable(&self, why: &str) -> StageError {
        StageError::transient(Failure::with_category(
            "UNREADABLE_ANSWER",
            Category::System,
            format!(
                "invalid response from the {} service: {why}",
                self.step.name()
            ),
        ))
    }

    /// A call without a response.
    fn lost(&self, lost: &NoResponse) -> StageError {
        StageError::unavailable(Failure::with_category(
            lost.code,
            Category::Network,
            format!("the {} service gave no answer: {lost}", self.step.name()),
        ))
    }
}

impl Stage for HttpStage {
    fn name(&self) -> &'static str {
        "http"
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn run(&self, request: Request) -> BoxFuture<'_, Result<Vec<Criterion>, StageError>> {
        self.post(request).boxed()
    }
}

/// Removes what can't be stored or displayed.
fn storable_criterion(mut criterion: Criterion) -> Criterion {
    let clean = |text: &str| storable(text, MAX_TEXT_BYTES);
    criterion.text = clean(&criterion.text);
    criterion.number = criterion.number.as_deref().map(clean);
    for term in &mut criterion.terms {
        term.text = clean(&term.text);
        term.code = clean(&term.code);
        term.label = clean(&term.label);
    }
    for measure in &mut criterion.measures {
        measure.text = clean(&measure.text);
        measure.unit = clean(&measure.unit);
    }
    criterion
}
