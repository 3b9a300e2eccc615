//! A command as a client of a running server.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::ClientOptions;
use crate::exit::{Exit, Failure, chain};

/// The longest that a command waits for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest that a look at the server's health takes.
const GLANCE: Duration = Duration::from_secs(10);

/// The longest that a file may take on its way.
const LONGEST_UPLOAD: Duration = Duration::from_secs(86_400);

/// A stream takes as long as it takes.
const ENDLESS: Duration = Duration::from_secs(7 * 86_400);

/// Whoever waits for something bears a server that is away for so long: it restarts, or another takes over.
const AWAY: Duration = Duration::from_secs(30);

/// The pause before a server that was away is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// A request that came to nothing.
#[derive(Debug)]
pub struct Miss {
    /// What the server said, if it said something that can be read.
    pub status: Option<StatusCode>,
    /// May the server have got it?
    sent: bool,
    failure: Failure,
}

impl Miss {
    /// May it be otherwise in a moment? Not what the server refuses: it has understood the request.
    pub fn may_pass(&self) -> bool {
        let refused = self.status.is_some_and(|status| status.is_client_error());
        self.failure.exit != Exit::Usage && !refused
    }

    /// Is it unknown whether the server has done what was asked?
    pub fn is_uncertain(&self) -> bool {
        self.sent && self.may_pass()
    }
}

impl From<Failure> for Miss {
    /// What fails before anything is sent.
    fn from(failure: Failure) -> Self {
        Self {
            status: None,
            sent: false,
            failure,
        }
    }
}

impl From<Miss> for Failure {
    fn from(miss: Miss) -> Self {
        miss.failure
    }
}

/// A connection to a server.
pub struct Client {
    http: reqwest::Client,
    server: url::Url,
    token: Option<String>,
}

impl Client {
    /// A client of the server that the options name.
    pub fn new(options: &ClientOptions) -> Result<Self, Failure> {
        let server = address(&options.server)?;
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
    ) -> Result<(StatusCode, Value), Miss> {
        let mut request = self.request(method, path, query)?;
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    /// What is at `path`; a server that is away is asked again for a while.
    pub async fn look(&self, path: &[&str]) -> Result<Value, Miss> {
        let begun = Instant::now();
        loop {
            match self.call(Method::GET, path, &[], None).await {
                Ok((_, view)) => return Ok(view),
                Err(miss) if !miss.may_pass() || begun.elapsed() >= AWAY => return Err(miss),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Whether the server is ready, and what it says to that.
    pub async fn ready(&self) -> Result<(bool, Value), Miss> {
        let request = self.request(Method::GET, &["readyz"], &[])?.timeout(GLANCE);
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        let ready = response.status().is_success();
        let said = response.json().await.map_err(|e| self.unreachable(e))?;
        Ok((ready, said))
    }

    /// Posts a file as it is, however long that takes.
    pub async fn upload(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        media: &str,
        file: impl Into<reqwest::Body>,
    ) -> Result<(StatusCode, Value), Miss> {
        let request = self
            .request(Method::POST, path, query)?
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
    ) -> Result<Value, Miss> {
        let mut request = self
            .request(Method::POST, path, &[])?
            .header("content-type", "application/json")
            .body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(self.answer(request).await?.1)
    }

    /// Begins to read an answer of any length.
    pub async fn get(&self, path: &[&str]) -> Result<Pieces<'_>, Miss> {
        let request = self.request(Method::GET, path, &[])?.timeout(ENDLESS);
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        if response.status().is_success() {
            return Ok(Pieces {
                client: self,
                response,
            });
        }
        self.read(response).await.and_then(|(status, _)| {
            Err(refused(status, "", format!("the server answers {status}")))
        })
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, Failure> {
        path.iter().try_for_each(|segment| sayable(segment))?;
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

    async fn answer(&self, request: RequestBuilder) -> Result<(StatusCode, Value), Miss> {
        let response = request.send().await.map_err(|e| self.unreachable(e))?;
        self.read(response).await
    }

    async fn read(&self, response: reqwest::Response) -> Result<(StatusCode, Value), Miss> {
        let status = response.status();
        let answer: Value = response.json().await.map_err(|e| Miss {
            status: Some(status),
            ..self.unreachable(e)
        })?;
        if status.is_success() {
            return Ok((status, answer));
        }
        let word = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        let code = word("code");
        let said = format!("{} ({} {code})", word("detail"), status.as_u16());
        Err(refused(status, &code, said))
    }

    fn unreachable(&self, error: reqwest::Error) -> Miss {
        let sent = !error.is_connect() && !error.is_builder();
        let why = chain(&error.without_url());
        let server = &self.server;
        let failure = Failure::new(
            Exit::Unreachable,
            format!(
                "no Postrider answers at {server} ({why}); start one with `postrider serve` or name another with --server"
            ),
        );
        Miss {
            status: None,
            sent,
            failure,
        }
    }
}

fn refused(status: StatusCode, code: &str, said: String) -> Miss {
    Miss {
        status: Some(status),
        sent: true,
        failure: Failure::refused(code, said),
    }
}

/// The server's address. A host alone is no URL, and `localhost:8080` is one with the scheme `localhost`.
fn address(text: &str) -> Result<url::Url, Failure> {
    let unfit = |why: &str| {
        let message = format!(
            "--server {text} is no address ({why}); write one such as http://127.0.0.1:8080"
        );
        Failure::new(Exit::Usage, message)
    };
    let server = url::Url::parse(text).map_err(|e| unfit(&chain(&e)))?;
    match server.scheme() {
        "http" | "https" => Ok(server),
        _ => Err(unfit("it begins neither with http:// nor with https://")),
    }
}

/// Can a request name it in its path? A segment that is nothing or dots would be left out on the way, as would white space
/// in it, and the request would be another one.
fn sayable(segment: &str) -> Result<(), Failure> {
    let lost = segment.contains(['\t', '\n', '\r']);
    if lost || matches!(segment, "" | "." | "..") {
        let message = format!("{segment:?} is no id or key that can be asked for");
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(())
}

/// An answer, piece by piece.
pub struct Pieces<'a> {
    client: &'a Client,
    response: reqwest::Response,
}

impl Pieces<'_> {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<axum::body::Bytes>, Miss> {
        let piece = self.response.chunk().await;
        piece.map_err(|e| self.client.unreachable(e))
    }
}
