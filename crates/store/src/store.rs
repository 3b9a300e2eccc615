//! One store, opened.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::{
    Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload, Result, path::Path as Key,
};

use crate::Upload;

/// A directory or a bucket. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// Ends with a slash.
    address: Arc<str>,
}

impl Store {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, address: &str) -> Self {
        Self {
            inner,
            address: format!("{}/", address.trim_end_matches('/')).into(),
        }
    }

    /// The absolute address of an object.
    #[must_use]
    pub fn url(&self, key: &Key) -> String {
        format!("{}{key}", self.address)
    }

    /// The object that an absolute address names, if it is inside this store.
    #[must_use]
    pub fn key_of(&self, url: &str) -> Option<Key> {
        Key::parse(url.strip_prefix(&*self.address)?).ok()
    }

    /// The client underneath, for what is not here.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    /// Writes a whole object, over an older one if there is any.
    pub async fn put(&self, key: &Key, content: Bytes) -> Result<()> {
        self.inner.put(key, PutPayload::from(content)).await?;
        Ok(())
    }

    /// Writes a whole object unless there is one of this name; says whether it wrote.
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

    /// Begins an object whose content comes piece by piece.
    pub async fn upload(&self, key: &Key) -> Result<Upload> {
        Ok(Upload::new(self.inner.put_multipart(key).await?))
    }

    /// Size and time of an object; `None` when it isn't there.
    pub async fn head(&self, key: &Key) -> Result<Option<ObjectMeta>> {
        match self.inner.head(key).await {
            Ok(meta) => Ok(Some(meta)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The content, piece by piece.
    pub async fn read(&self, key: &Key) -> Result<BoxStream<'static, Result<Bytes>>> {
        Ok(self.inner.get(key).await?.into_stream())
    }

    /// The content as a whole; for small objects.
    pub async fn read_all(&self, key: &Key) -> Result<Bytes> {
        self.inner.get(key).await?.bytes().await
    }

    /// Removes an object; none there is fine.
    pub async fn delete(&self, key: &Key) -> Result<()> {
        match self.inner.delete(key).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Everything below a prefix.
    pub fn list(&self, prefix: &Key) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(Some(prefix))
    }
}
