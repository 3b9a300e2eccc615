//! A Case API over HTTP: `PUT` and `GET {url}/cases/{case_id}/evidence/{artifact_id}`.

use futures_util::{FutureExt, future::BoxFuture};
use postrider_web::http_client::{self, ClientError, Endpoint, EndpointClient, NoResponse};
use reqwest::{Body, Method, RequestBuilder, StatusCode, header};
use uuid::Uuid;

use super::{CaseApi, Content, Refusal, Upload};
use crate::model::Code;

/// The file's name, percent-encoded.
const NAME: &str = "x-file-name";
/// The SHA-256 of its content, in hexadecimal.
const DIGEST: &str = "x-file-sha256";

/// A client for a Case API over HTTP.
pub struct HttpCases {
    client: EndpointClient,
}

impl HttpCases {
    /// A Case API at this endpoint. Makes no call yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, ClientError> {
        let client = endpoint.client()?;
        Ok(Self { client })
    }

    fn request(
        &self,
        method: Method,
        case: Uuid,
        artifact: Uuid,
    ) -> Result<RequestBuilder, Refusal> {
        let (case, artifact) = (case.to_string(), artifact.to_string());
        let path = ["cases", &case, "evidence", &artifact];
        self.client.request(method, &path).ok_or_else(|| {
            let message = "evidence.case_api.url can't have a path appended";
            Refusal::lost(Code::SystemError, message)
        })
    }

    async fn put(&self, upload: Upload) -> Result<(), Refusal> {
        let request = self.request(Method::PUT, upload.case_id, upload.artifact_id)?;
        let file_type = upload.file_type.as_deref();
        let body = match upload.content {
            Content::Whole(bytes) => Body::from(bytes),
            Content::Pieces(pieces) => Body::wrap_stream(pieces),
        };
        let name: String =
            url::form_urlencoded::byte_serialize(upload.file_name.as_bytes()).collect();
        let request = request
            .header(
                header::CONTENT_TYPE,
                file_type.unwrap_or("application/octet-stream"),
            )
            .header(header::CONTENT_LENGTH, upload.size)
            .header(NAME, name.replace('+', "%20"))
            .header(DIGEST, upload.sha256)
            .body(body);
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        if status.is_success() || status == StatusCode::CONFLICT {
            return Ok(());
        }
        let wait = http_client::retry_after(response.headers());
        Err(Refusal::status(status.as_u16(), wait))
    }

    async fn get(&self, case: Uuid, artifact: Uuid) -> Result<bool, Refusal> {
        let request = self.request(Method::GET, case, artifact)?;
        let response = request.send().await.map_err(lost)?;
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
    Refusal::lost(code, NoResponse::from(error))
}
