//! A command as a client of a running server.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::ClientOptions;
use crate::exit::{Exit, Failure, chain};

/// The longest that a command waits for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest that a file may take on its way.
const LONGEST_UPLOAD: Duration = Duration::from_secs(86_400);

/// A stream takes as long as it takes.
const ENDLESS: Duration = Duration::from_secs(7 * 86_400);

/// A connection to a server.
pub struct Client {
    http: reqwest::Client,
    server: url::Url,
    token: Option<String>,
}

impl Client {
    /// A client of the server that the options name.
    pub fn new(options: &ClientOptions) -> Result<Self, Failure> {
        let server = url::Url::parse(&options.server)
            .map_err(|e| Failure::caused(Exit::Usage, "--server", &e))?;
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            .build()
            .map_err(|e| Failure::caused(Exit::Failed, "no client can be made", &e))?;
        Ok(Self {
            http,
            server,
            token: options.token.clone(),
        })
    }

    /// Calls the path made of these segments; gives status and JSON of an answer that is not a refusal.
    pub async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), Failure> {
        let mut request = self.request(method, path, query);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    /// Posts a file as it is, however long that takes.
    pub async fn upload(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        media: &str,
        file: impl Into<reqwest::Body>,
    ) -> Result<(StatusCode, Value), Failure> {
        let request = self
            .request(Method::POST, path, query)
            .timeout(LONGEST_UPLOAD)
            .header(reqwest::header::CONTENT_TYPE, media)
            .body(file);
        self.answer(request).await
    }

    /// Posts a JSON text as it is, with these headers.
    pub async fn send_json(
        &self,
        path: &[&str],
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Value, Failure> {
        let mut request = self
            .request(Method::POST, path, &[])
            .header("content-type", "application/json")
            .body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(self.answer(request).await?.1)
    }

    /// Begins to read an answer of any length.
    pub async fn get(&self, path: &[&str]) -> Result<Pieces<'_>, Failure> {
        let request = self.request(Method::GET, path, &[]).timeout(ENDLESS);
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        if response.status().is_success() {
            return Ok(Pieces {
                client: self,
                response,
            });
        }
        self.read(response).await.and_then(|(status, _)| {
            Err(Failure::new(
                Exit::Refused,
                format!("the server answers {status}"),
            ))
        })
    }

    fn request(&self, method: Method, path: &[&str], query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn answer(&self, request: RequestBuilder) -> Result<(StatusCode, Value), Failure> {
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        self.read(response).await
    }

    async fn read(&self, response: reqwest::Response) -> Result<(StatusCode, Value), Failure> {
        let status = response.status();
        let answer: Value = response.json().await.map_err(|e| self.unreachable(e))?;
        if status.is_success() {
            return Ok((status, answer));
        }
        let word = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Err(Failure::new(
            Exit::Refused,
            format!("{} ({} {})", word("detail"), status.as_u16(), word("code")),
        ))
    }

    fn unreachable(&self, error: reqwest::Error) -> Failure {
        let why = chain(&error.without_url());
        let server = &self.server;
        Failure::new(
            Exit::Unreachable,
            format!(
                "no Postrider answers at {server} ({why}); start one with `postrider serve` or name another with --server"
            ),
        )
    }
}

/// An answer, piece by piece.
pub struct Pieces<'a> {
    client: &'a Client,
    response: reqwest::Response,
}

impl Pieces<'_> {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<axum::body::Bytes>, Failure> {
        let piece = self.response.chunk().await;
        piece.map_err(|e| self.client.unreachable(e))
    }
}
