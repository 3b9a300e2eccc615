//! A command as a client of a running server.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::ClientOptions;
use crate::exit::{Exit, Failure, chain};

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of an upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Timeout of a stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(7 * 86_400);

/// How long a polling command tolerates an unreachable server: it may be restarting, or another may take over.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause before an unreachable server is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A request that failed.
#[derive(Debug)]
pub struct RequestError {
    /// The response's status, if a response came.
    pub status: Option<StatusCode>,
    /// Invalid values, by field name.
    fields: Vec<(String, String)>,
    /// The server may have received it.
    sent: bool,
    failure: Failure,
}

impl RequestError {
    /// Could the same request succeed in a moment? Not if the server understood and refused it.
    pub fn is_transient(&self) -> bool {
        let refused = self.status.is_some_and(|status| status.is_client_error());
        self.failure.exit != Exit::Usage && !refused
    }

    /// Is it unknown whether the server did what was asked?
    pub fn is_uncertain(&self) -> bool {
        self.sent && self.is_transient()
    }

    /// For a request built from flags: names the flag of each invalid value instead of the body's field. `flags` maps
    /// fields whose flag has another name.
    #[must_use]
    pub fn naming_flags(self, flags: &[(&str, &str)]) -> Self {
        if self.fields.is_empty() {
            return self;
        }
        let named: Vec<String> = self
            .fields
            .iter()
            .map(|(field, reason)| {
                let flag = flags.iter().find(|(name, _)| name == field);
                let flag = flag.map_or_else(
                    || format!("--{}", field.replace('_', "-")),
                    |(_, flag)| (*flag).to_owned(),
                );
                format!("{flag}: {reason}")
            })
            .collect();
        let failure = self.failure.with_message(named.join("; "));
        Self { failure, ..self }
    }
}

impl From<Failure> for RequestError {
    /// A failure before anything is sent.
    fn from(failure: Failure) -> Self {
        Self {
            status: None,
            fields: Vec::new(),
            sent: false,
            failure,
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        error.failure
    }
}

/// A client of one server.
pub struct Client {
    http: reqwest::Client,
    server: url::Url,
    token: Option<String>,
}

impl Client {
    /// A client of the server that the options name.
    pub fn new(options: &ClientOptions) -> Result<Self, Failure> {
        let http = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(|e| Failure::caused(Exit::Failed, "can't create an HTTP client", &e))?;
        Ok(Self {
            http,
            server: address(options.server())?,
            token: options.token.clone(),
        })
    }

    /// The server's address.
    pub fn server(&self) -> &url::Url {
        &self.server
    }

    /// Calls the path made of these segments; returns status and JSON of a successful response.
    pub async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), RequestError> {
        let mut request = self.request(method, path, query)?;
        if let Some(body) = body {
            request = request.json(body);
        }
        self.send(request).await
    }

    /// Gets `path`; retries while the server is unreachable, up to [`OUTAGE_TIMEOUT`].
    pub async fn poll(&self, path: &[&str]) -> Result<Value, RequestError> {
        let started = Instant::now();
        loop {
            match self.call(Method::GET, path, &[], None).await {
                Ok((_, view)) => return Ok(view),
                Err(error) if !error.is_transient() || started.elapsed() >= OUTAGE_TIMEOUT => {
                    return Err(error);
                }
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Whether the server is ready, and its health report.
    pub async fn ready(&self) -> Result<(bool, Value), RequestError> {
        let request = self
            .request(Method::GET, &["readyz"], &[])?
            .timeout(HEALTH_TIMEOUT);
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        let ready = response.status().is_success();
        let report = response.json().await.map_err(|e| self.unreachable(e))?;
        Ok((ready, report))
    }

    /// Gets `path` from a running server; none if no Postrider server answers, or one that doesn't know the path.
    pub async fn get_if_running(&self, path: &[&str]) -> Result<Option<Value>, RequestError> {
        match self.call(Method::GET, path, &[], None).await {
            Ok((_, view)) => Ok(Some(view)),
            Err(error)
                if error.failure.exit == Exit::Unreachable
                    || error.status == Some(StatusCode::NOT_FOUND) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Posts a file as it is.
    pub async fn upload(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        media: &str,
        file: impl Into<reqwest::Body>,
    ) -> Result<(StatusCode, Value), RequestError> {
        let request = self
            .request(Method::POST, path, query)?
            .timeout(UPLOAD_TIMEOUT)
            .header(reqwest::header::CONTENT_TYPE, media)
            .body(file);
        self.send(request).await
    }

    /// Posts a JSON text as it is, with these headers.
    pub async fn send_json(
        &self,
        path: &[&str],
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Value, RequestError> {
        let mut request = self
            .request(Method::POST, path, &[])?
            .header("content-type", "application/json")
            .body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(self.send(request).await?.1)
    }

    /// Starts to read a response of any length.
    pub async fn stream(&self, path: &[&str]) -> Result<Chunks<'_>, RequestError> {
        let request = self
            .request(Method::GET, path, &[])?
            .timeout(STREAM_TIMEOUT);
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        if response.status().is_success() {
            return Ok(Chunks {
                client: self,
                response,
            });
        }
        self.read(response).await.and_then(|(status, _)| {
            let message = format!("the server answered {status}");
            Err(refused(status, &Value::Null, message))
        })
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, Failure> {
        path.iter().try_for_each(|segment| check_segment(segment))?;
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, Value), RequestError> {
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        self.read(response).await
    }

    async fn read(&self, response: reqwest::Response) -> Result<(StatusCode, Value), RequestError> {
        let status = response.status();
        let body: Value = response.json().await.map_err(|e| RequestError {
            status: Some(status),
            ..self.unreachable(e)
        })?;
        if status.is_success() {
            return Ok((status, body));
        }
        let word = |name: &str| body[name].as_str().unwrap_or_default();
        let message = format!("{} ({} {})", word("detail"), status.as_u16(), word("code"));
        Err(refused(status, &body, message))
    }

    fn unreachable(&self, error: reqwest::Error) -> RequestError {
        let sent = !error.is_connect() && !error.is_builder();
        let cause = chain(&error.without_url());
        let server = &self.server;
        let failure = Failure::new(
            Exit::Unreachable,
            format!(
                "no Postrider server answers at {server} ({cause}); start one with `postrider serve` or name another with --server"
            ),
        );
        RequestError {
            sent,
            ..failure.into()
        }
    }
}

fn refused(status: StatusCode, body: &Value, message: String) -> RequestError {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let errors = body["errors"].as_array().map_or(&[][..], Vec::as_slice);
    RequestError {
        status: Some(status),
        fields: errors
            .iter()
            .map(|error| {
                let field = text(&error["field"]);
                (
                    field.trim_start_matches('/').to_owned(),
                    text(&error["reason"]),
                )
            })
            .filter(|(field, _)| !field.is_empty())
            .collect(),
        sent: true,
        failure: Failure::refused(&text(&body["code"]), message),
    }
}

/// The server's address. A host alone isn't a URL, and `localhost:8080` is one with the scheme `localhost`.
fn address(text: &str) -> Result<url::Url, Failure> {
    let invalid = |why: &str| {
        let message = format!(
            "--server {text} is not a server's address ({why}); write one such as http://127.0.0.1:8080"
        );
        Failure::new(Exit::Usage, message)
    };
    let server = url::Url::parse(text).map_err(|e| invalid(&chain(&e)))?;
    match server.scheme() {
        "http" | "https" => Ok(server),
        _ => Err(invalid("it starts with neither http:// nor https://")),
    }
}

/// Refuses path segments that a URL would drop or change, which would turn the request into another one.
fn check_segment(segment: &str) -> Result<(), Failure> {
    let changed = segment.contains(['\t', '\n', '\r']);
    if changed || matches!(segment, "" | "." | "..") {
        let message = format!("{segment:?} is not a valid id or key");
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(())
}

/// A response, chunk by chunk.
pub struct Chunks<'a> {
    client: &'a Client,
    response: reqwest::Response,
}

impl Chunks<'_> {
    /// The next chunk; none at the end.
    pub async fn next(&mut self) -> Result<Option<axum::body::Bytes>, RequestError> {
        let chunk = self.response.chunk().await;
        chunk.map_err(|e| self.client.unreachable(e))
    }
}
