//! An external HTTP API: where it is and how it is called.

use std::{fmt, time::Duration};

use http::Method;
use reqwest::{Client, RequestBuilder};
use url::Url;

use super::{ClientError, client, join};

/// The URL, bearer token and call timeout of an external HTTP API.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Base URL.
    pub url: Url,
    /// Bearer token.
    pub token: Option<String>,
    /// Timeout of one call, including reading the response.
    pub timeout: Duration,
}

impl Endpoint {
    /// The endpoint that these settings describe; none without a URL.
    #[must_use]
    pub fn from_settings(
        url: Option<&Url>,
        token: Option<&str>,
        timeout: Duration,
    ) -> Option<Self> {
        Some(Self {
            url: url?.clone(),
            token: token.map(str::to_owned),
            timeout,
        })
    }

    /// A client for it. Makes no call yet.
    pub fn client(self) -> Result<EndpointClient, ClientError> {
        Ok(EndpointClient {
            client: client(self.timeout)?,
            url: self.url,
            token: self.token,
        })
    }
}

impl fmt::Debug for Endpoint {
    /// Neither the token nor credentials in the URL belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("host", &self.url.host_str())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Calls one [`Endpoint`].
#[derive(Clone)]
pub struct EndpointClient {
    client: Client,
    url: Url,
    token: Option<String>,
}

impl EndpointClient {
    /// A request to the base URL, with the token.
    pub fn base_request(&self, method: Method) -> RequestBuilder {
        self.with_token(self.client.request(method, self.url.clone()))
    }

    /// A request to the base URL extended by these path segments, with the token; none if a segment can't be part of a URL
    /// (see [`join`]).
    #[must_use]
    pub fn request(&self, method: Method, segments: &[&str]) -> Option<RequestBuilder> {
        let url = join(&self.url, segments)?;
        Some(self.with_token(self.client.request(method, url)))
    }

    fn with_token(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }
}

impl fmt::Debug for EndpointClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointClient")
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}
