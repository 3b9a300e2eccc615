//! A Case API behind HTTP: `PUT` and `GET {url}/cases/{case_id}/evidence/{artifact_id}`.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use postrider_web::http_client::{self, Lost, Unprepared};
use reqwest::{Body, Client, StatusCode, header};
use url::Url;
use uuid::Uuid;

use super::{CaseApi, Content, Refusal, Upload};
use crate::model::Code;

/// The file's name, percent-encoded.
const NAME: &str = "x-file-name";
/// The SHA-256 of its content, in hexadecimal.
const DIGEST: &str = "x-file-sha256";

/// Where the API is, and how it is called.
#[derive(Clone)]
pub struct HttpSettings {
    /// In front of `/cases`.
    pub url: Url,
    /// Shown as a bearer token.
    pub token: Option<String>,
    /// The longest that one call may take.
    pub timeout: Duration,
}

/// The client.
pub struct HttpCases {
    client: Client,
    base: Url,
    token: Option<String>,
}

impl HttpCases {
    /// Calls nobody yet.
    pub fn new(settings: HttpSettings) -> Result<Self, Unprepared> {
        Ok(Self {
            client: http_client::client(settings.timeout)?,
            base: settings.url,
            token: settings.token,
        })
    }

    fn url(&self, case: Uuid, artifact: Uuid) -> Result<Url, Refusal> {
        let (case, artifact) = (case.to_string(), artifact.to_string());
        http_client::below(&self.base, &["cases", &case, "evidence", &artifact]).ok_or_else(|| {
            let message = "evidence.case_api.url can't be extended by a path";
            Refusal::lost(Code::SystemError, message)
        })
    }

    fn with_token(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn put(&self, upload: Upload) -> Result<(), Refusal> {
        let url = self.url(upload.case_id, upload.artifact_id)?;
        let file_type = upload.file_type.as_deref();
        let body = match upload.content {
            Content::Whole(bytes) => Body::from(bytes),
            Content::Pieces(pieces) => Body::wrap_stream(pieces),
        };
        let name: String =
            url::form_urlencoded::byte_serialize(upload.file_name.as_bytes()).collect();
        let request = self
            .client
            .put(url)
            .header(
                header::CONTENT_TYPE,
                file_type.unwrap_or("application/octet-stream"),
            )
            .header(header::CONTENT_LENGTH, upload.size)
            .header(NAME, name.replace('+', "%20"))
            .header(DIGEST, upload.sha256)
            .body(body);
        let response = self.with_token(request).send().await.map_err(lost)?;
        let status = response.status();
        if status.is_success() || status == StatusCode::CONFLICT {
            return Ok(());
        }
        let wait = http_client::retry_after(response.headers());
        Err(Refusal::status(status.as_u16(), wait))
    }

    async fn get(&self, case: Uuid, artifact: Uuid) -> Result<bool, Refusal> {
        let request = self.client.get(self.url(case, artifact)?);
        let response = self.with_token(request).send().await.map_err(lost)?;
        match response.status() {
            status if status.is_success() => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            status => {
                let wait = http_client::retry_after(response.headers());
                Err(Refusal::status(status.as_u16(), wait))
            }
        }
    }
}

impl CaseApi for HttpCases {
    fn name(&self) -> &'static str {
        "http"
    }

    fn attach(&self, upload: Upload) -> BoxFuture<'_, Result<(), Refusal>> {
        self.put(upload).boxed()
    }

    fn look_up(&self, case: Uuid, artifact: Uuid) -> BoxFuture<'_, Result<bool, Refusal>> {
        self.get(case, artifact).boxed()
    }
}

fn lost(error: reqwest::Error) -> Refusal {
    let code = if error.is_timeout() {
        Code::ApiTimeout
    } else if error.is_body() || error.is_builder() {
        Code::SystemError
    } else {
        Code::NetworkTimeout
    };
    Refusal::lost(code, Lost::from(error))
}
