//! The configuration section `[store]`.

use std::{fmt, path::Path, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, RetryConfig, aws::AmazonS3Builder, local::LocalFileSystem,
    path::Path as Key, prefix::PrefixStore,
};
use postrider::internal::settings::{address, not_http, unless_empty};
use serde::Deserialize;
use url::Url;

use crate::Store;

/// `[store]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `file:///…` or `s3://bucket/prefix`; absent: a directory under the data directory.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Endpoint of an S3-compatible server; absent: Amazon's.
    #[serde(deserialize_with = "address")]
    pub endpoint: Option<Url>,
    /// The bucket's region.
    pub region: String,
    /// Access key id; absent: the credentials of the environment.
    #[serde(deserialize_with = "unless_empty")]
    pub access_key_id: Option<String>,
    /// Secret access key.
    #[serde(deserialize_with = "unless_empty")]
    pub secret_access_key: Option<String>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &self.url.as_ref().map(Url::as_str))
            .field("endpoint", &self.endpoint.as_ref().map(Url::as_str))
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Neither a directory nor S3.
    #[error("store.url is {0}; it must be file:///directory or s3://bucket/prefix")]
    Scheme(String),
    /// A file URL that is not a directory on this machine.
    #[error(
        "store.url is {0}, which is not a directory on this machine; write it as file:///directory"
    )]
    NoDirectory(String),
    /// The directory can't be created.
    #[error("the store's directory {path} can't be created")]
    Directory {
        /// The directory.
        path: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The store's client rejects the settings.
    #[error("the store can't be opened")]
    Client(#[from] object_store::Error),
}

impl Settings {
    /// A directory on this machine.
    #[must_use]
    pub fn directory(path: &Path) -> Self {
        Self {
            url: Url::from_directory_path(path).ok(),
            endpoint: None,
            region: "us-east-1".to_owned(),
            access_key_id: None,
            secret_access_key: None,
        }
    }

    /// Invalid values as (key, problem).
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if let Some(url) = &self.url
            && !matches!(url.scheme(), "file" | "s3")
        {
            found.push(("store.url", "must start with file:// or s3://".to_owned()));
        }
        if let Some(wrong) = not_http(self.endpoint.as_ref()) {
            found.push(("store.endpoint", wrong));
        }
        found
    }

    /// Opens the store; `default` is the directory to use without a URL.
    pub fn open(&self, default: &Path) -> Result<Store, OpenError> {
        let Some(url) = &self.url else {
            return local(default);
        };
        match url.scheme() {
            "file" => {
                let path = url
                    .to_file_path()
                    .map_err(|()| OpenError::NoDirectory(url.to_string()))?;
                local(&path)
            }
            "s3" => self.s3(url),
            _ => Err(OpenError::Scheme(url.to_string())),
        }
    }

    fn s3(&self, url: &Url) -> Result<Store, OpenError> {
        let Some(bucket) = url.host_str() else {
            return Err(OpenError::Scheme(url.to_string()));
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_region(&self.region)
            .with_retry(retry_config())
            .with_client_options(client_options(self.endpoint.as_ref()));
        if let Some(endpoint) = &self.endpoint {
            // Other servers use one host name for all buckets.
            builder = builder
                .with_endpoint(endpoint.as_str().trim_end_matches('/'))
                .with_virtual_hosted_style_request(false);
        }
        if let Some(id) = &self.access_key_id {
            builder = builder.with_access_key_id(id);
        }
        if let Some(secret) = &self.secret_access_key {
            builder = builder.with_secret_access_key(secret);
        }
        let s3 = builder.build()?;
        let prefix = Key::parse(url.path().trim_matches('/')).map_err(object_store::Error::from)?;
        if prefix.as_ref().is_empty() {
            return Ok(Store::bucket(s3, &format!("s3://{bucket}")));
        }
        let address = format!("s3://{bucket}/{prefix}");
        Ok(Store::bucket(PrefixStore::new(s3, prefix), &address))
    }
}

/// Retries brief failures only: the caller can wait for the end of an outage without holding resources.
fn retry_config() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        },
        max_retries: 2,
        retry_timeout: Duration::from_secs(10),
    }
}

/// No timeout for a whole request, because a large object takes time, but one for each read.
fn client_options(endpoint: Option<&Url>) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(5))
        .with_read_timeout(Duration::from_secs(30))
        .with_allow_http(endpoint.is_some_and(|endpoint| endpoint.scheme() == "http"))
}

fn local(path: &Path) -> Result<Store, OpenError> {
    let directory_error = |source| OpenError::Directory {
        path: path.display().to_string(),
        source,
    };
    std::fs::create_dir_all(path).map_err(directory_error)?;
    let path = path.canonicalize().map_err(directory_error)?;
    let address = Url::from_directory_path(&path)
        .map_err(|()| OpenError::NoDirectory(path.display().to_string()))?;
    // Without fsync, a file that a committed row refers to could be empty after a power failure.
    let directory = LocalFileSystem::new_with_prefix(&path)?.with_fsync(true);
    Ok(Store::directory(directory, path, address.as_str()))
}
