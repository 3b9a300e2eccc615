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
        file: tokio::fs::File,
    ) -> Result<(StatusCode, Value), Failure> {
        let request = self
            .request(Method::POST, path, query)
            .timeout(LONGEST_UPLOAD)
            .header(reqwest::header::CONTENT_TYPE, media)
            .body(file);
        self.answer(request).await
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
