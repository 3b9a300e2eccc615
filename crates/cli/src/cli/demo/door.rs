//! The client's side of the five APIs, as a careful client is: a request that has a key is repeated until it is
//! answered, one that has none is made once.

use std::{net::SocketAddr, time::Duration};

use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;
use tokio::time::Instant;

use crate::exit::{Exit, Failure};

/// The longest that one call may take.
const LONGEST_CALL: Duration = Duration::from_secs(60);

/// So long a request is repeated.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Where requests go in.
#[derive(Debug, Clone)]
pub struct Door {
    client: Client,
    base: String,
}

impl Door {
    /// The door of the API at this address.
    pub fn new(address: SocketAddr) -> Result<Self, Failure> {
        let client = Client::builder()
            .timeout(LONGEST_CALL)
            // Nobody between us and ourselves, whatever the environment says.
            .no_proxy()
            .build()
            .map_err(|e| Failure::caused(Exit::Failed, "no client can be made", &e))?;
        Ok(Self {
            client,
            base: format!("http://{address}"),
        })
    }

    /// A request to be filled.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Reads something.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.repeat(|| self.request(Method::GET, path)).await
    }

    /// Posts something that may be posted again: it has a key, or asks for what can only happen once.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.repeat(|| self.request(Method::POST, path).json(body))
            .await
    }

    /// Makes a request until it is answered by anything but "not now".
    pub async fn repeat(&self, make: impl Fn() -> RequestBuilder) -> Result<Value, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match answer(make()).await {
                Err(Unanswered::NotNow(why)) if Instant::now() > deadline => {
                    return Err(Failure::new(
                        Exit::Failed,
                        format!("the API does not answer: {why}"),
                    ));
                }
                Err(Unanswered::NotNow(_)) => tokio::time::sleep(PAUSE).await,
                Err(Unanswered::Refused(why)) => return Err(Failure::new(Exit::Failed, why)),
                Ok(value) => return Ok(value),
            }
        }
    }

    /// Makes a request once.
    pub async fn once(&self, request: RequestBuilder) -> Result<Value, Failure> {
        answer(request).await.map_err(|unanswered| {
            let (Unanswered::NotNow(why) | Unanswered::Refused(why)) = unanswered;
            Failure::new(Exit::Failed, why)
        })
    }
}

enum Unanswered {
    /// Lost on the way, or the server has trouble: the same request may succeed later.
    NotNow(String),
    /// The server does not want it.
    Refused(String),
}

async fn answer(request: RequestBuilder) -> Result<Value, Unanswered> {
    let lost = |e: reqwest::Error| Unanswered::NotNow(crate::exit::chain(&e));
    let response = request.send().await.map_err(lost)?;
    let (status, path) = (response.status(), response.url().path().to_owned());
    let text = response.text().await.map_err(lost)?;
    if status.is_success() {
        return serde_json::from_str(&text)
            .map_err(|e| Unanswered::Refused(format!("{path} answers with no JSON: {e}")));
    }
    let told = format!("{path} answers {status}: {text}");
    if status.is_server_error() || status.as_u16() == 429 {
        Err(Unanswered::NotNow(told))
    } else {
        Err(Unanswered::Refused(told))
    }
}
