//! An open store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::{
    Error, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload, Result,
    path::Path as Key,
};

use crate::{
    Content, Upload,
    remote::{Remote, RemoteUpload},
};

/// Maximum number of concurrent existence checks in a bucket.
const MAX_CONCURRENT_CHECKS: usize = 32;

/// A directory or a bucket. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// Base URL with a trailing slash.
    base: Arc<str>,
    backend: Backend,
}

/// The backend, for what `ObjectStore` can't do.
#[derive(Clone, Debug)]
enum Backend {
    Directory(Arc<Path>),
    Bucket(Arc<dyn Remote>),
}

impl Store {
    pub(crate) fn directory(client: impl ObjectStore, root: PathBuf, base: &str) -> Self {
        Self {
            inner: Arc::new(client),
            base: with_trailing_slash(base),
            backend: Backend::Directory(root.into()),
        }
    }

    pub(crate) fn bucket(client: impl Remote, base: &str) -> Self {
        let client = Arc::new(client);
        Self {
            inner: client.clone(),
            base: with_trailing_slash(base),
            backend: Backend::Bucket(client),
        }
    }

    pub(crate) fn root(&self) -> Option<&Path> {
        match &self.backend {
            Backend::Directory(root) => Some(root),
            Backend::Bucket(_) => None,
        }
    }

    pub(crate) fn remote(&self) -> Option<&Arc<dyn Remote>> {
        match &self.backend {
            Backend::Directory(_) => None,
            Backend::Bucket(remote) => Some(remote),
        }
    }

    /// Starts a multipart upload.
    pub(crate) async fn start_multipart(&self, key: &Key) -> Result<Box<dyn MultipartUpload>> {
        match &self.backend {
            Backend::Directory(_) => self.inner.put_multipart(key).await,
            Backend::Bucket(remote) => Ok(Box::new(
                RemoteUpload::start(Arc::clone(remote), key).await?,
            )),
        }
    }

    /// The absolute URL of an object.
    #[must_use]
    pub fn url(&self, key: &Key) -> String {
        format!("{}{key}", self.base)
    }

    /// The key of an absolute URL, if it's inside this store.
    #[must_use]
    pub fn key_from_url(&self, url: &str) -> Option<Key> {
        Key::parse(url.strip_prefix(&*self.base)?).ok()
    }

    /// Writes an object, replacing an existing one.
    pub async fn put(&self, key: &Key, content: Bytes) -> Result<()> {
        self.inner.put(key, PutPayload::from(content)).await?;
        Ok(())
    }

    /// Writes an object unless the key exists. True if it was written.
    pub async fn put_new(&self, key: &Key, content: Bytes) -> Result<bool> {
        let put = self
            .inner
            .put_opts(key, PutPayload::from(content), PutMode::Create.into());
        match put.await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Starts writing an object chunk by chunk.
    #[must_use]
    pub fn upload(&self, key: &Key) -> Upload {
        Upload::new(self.clone(), key.clone())
    }

    /// Size and time of an object; `None` if it doesn't exist.
    pub async fn head(&self, key: &Key) -> Result<Option<ObjectMeta>> {
        match self.inner.head(key).await {
            Ok(meta) => Ok(Some(meta)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Which of these objects exist, in their order.
    pub async fn exist(&self, keys: Vec<Key>) -> Vec<Result<bool>> {
        let mut found = vec![false; keys.len()];
        if let Backend::Directory(root) = &self.backend {
            // One switch to another thread for all of them.
            let paths: Vec<PathBuf> = keys.iter().map(|key| root.join(key.as_ref())).collect();
            let check = move || paths.iter().map(|path| path.is_file()).collect();
            found = tokio::task::spawn_blocking(check).await.unwrap_or(found);
        }
        // For files that were not found by path, the store itself decides.
        stream::iter(keys.into_iter().zip(found))
            .map(|(key, found)| {
                let store = self.clone();
                async move { Ok(found || store.head(&key).await?.is_some()) }
            })
            .buffered(MAX_CONCURRENT_CHECKS)
            .collect()
            .await
    }

    /// The object, ready to be read.
    pub async fn get(&self, key: &Key) -> Result<Content> {
        self.inner.get(key).await.map(Content::new)
    }

    /// The content as a stream of chunks.
    pub async fn read(&self, key: &Key) -> Result<BoxStream<'static, Result<Bytes>>> {
        Ok(self.get(key).await?.chunks())
    }

    /// The whole content in memory; for small objects.
    pub async fn read_all(&self, key: &Key) -> Result<Bytes> {
        self.get(key).await?.bytes().await
    }

    /// Deletes an object. Succeeds if it doesn't exist.
    pub async fn delete(&self, key: &Key) -> Result<()> {
        match self.inner.delete(key).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All objects below a prefix.
    pub fn list(&self, prefix: &Key) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(Some(prefix))
    }
}

fn with_trailing_slash(base: &str) -> Arc<str> {
    format!("{}/", base.trim_end_matches('/')).into()
}
