//! A stage behind HTTP: `POST {url}` with the request as JSON.
//!
//! 2xx with criteria is done; 4xx is permanent, but for 408, 425 and 429; everything else may pass. Who can't be
//! reached, does not answer in time, or says that it is too busy (429, 502, 503, 504) is away.

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use postrider::failure::{Category, Failure, storable};
use postrider_web::http_client::{
    self, BodyError, ClientError, Endpoint, EndpointClient, NoResponse,
};
use reqwest::{Method, Response};
use serde::Deserialize;

use super::{Request, Stage, Trouble};
use crate::model::{Criterion, Step};

/// No stage has more to say about one protocol.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;

/// No protocol has more criteria.
const MOST_CRITERIA: usize = 10_000;

/// No criterion is longer, in bytes.
const LONGEST_TEXT: usize = 20_000;

/// The adapter.
pub struct HttpStage {
    client: EndpointClient,
    step: Step,
}

#[derive(Deserialize)]
struct Answer {
    criteria: Vec<Criterion>,
}

impl HttpStage {
    /// The stage at this endpoint. Makes no call yet.
    pub fn new(step: Step, endpoint: Endpoint) -> Result<Self, ClientError> {
        let client = endpoint.client()?;
        Ok(Self { client, step })
    }

    async fn post(&self, request: Request) -> Result<Vec<Criterion>, Trouble> {
        let name = self.step.name();
        // The same on every attempt of a try, so that the service can tell a repetition.
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
                let said = self.body(response).await.unwrap_or_default();
                let said = storable(String::from_utf8_lossy(&said).trim(), 500);
                Err(Trouble::permanent(
                    "stage_rejected",
                    &status.to_string(),
                    format!(
                        "the {name} service rejected the protocol with status {status}: {said}"
                    ),
                ))
            }
            _ => {
                let message = format!("the {name} service answered with status {status}");
                let retry_after = http_client::retry_after(response.headers());
                let category = Category::from_status(status);
                let failure = Failure::with_category(&status.to_string(), category, message);
                let trouble = match status {
                    429 | 502 | 503 | 504 => Trouble::unavailable(failure),
                    _ => Trouble::transient(failure),
                };
                Err(Trouble {
                    retry_after,
                    ..trouble
                })
            }
        }
    }

    async fn read(&self, response: Response) -> Result<Vec<Criterion>, Trouble> {
        let body = self.body(response).await?;
        let answer: Answer = serde_json::from_slice(&body).map_err(|error| {
            self.unreadable(&format!(
                "it is not {{\"criteria\": […]}} as agreed: {error}"
            ))
        })?;
        if answer.criteria.len() > MOST_CRITERIA {
            return Err(self.unreadable("it has too many criteria"));
        }
        Ok(answer
            .criteria
            .into_iter()
            .map(storable_criterion)
            .collect())
    }

    async fn body(&self, response: Response) -> Result<Bytes, Trouble> {
        match http_client::body(response, LONGEST_ANSWER).await {
            Ok(body) => Ok(body),
            Err(BodyError::NoResponse(lost)) => Err(self.lost(&lost)),
            Err(error @ BodyError::TooLarge { .. }) => Err(self.unreadable(&error.to_string())),
        }
    }

    fn unreadable(&self, why: &str) -> Trouble {
        Trouble::transient(Failure::with_category(
            "UNREADABLE_ANSWER",
            Category::System,
            format!(
                "the answer of the {} service can't be used: {why}",
                self.step.name()
            ),
        ))
    }

    /// A call without an answer.
    fn lost(&self, lost: &NoResponse) -> Trouble {
        Trouble::unavailable(Failure::with_category(
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

    fn run(&self, request: Request) -> BoxFuture<'_, Result<Vec<Criterion>, Trouble>> {
        self.post(request).boxed()
    }
}

/// Whatever a service says, it can be stored and shown.
fn storable_criterion(mut criterion: Criterion) -> Criterion {
    let clean = |text: &str| storable(text, LONGEST_TEXT);
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
