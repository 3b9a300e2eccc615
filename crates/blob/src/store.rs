//! One store, opened.

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

/// Questions to a bucket that are under way together.
const AT_ONCE: usize = 32;

/// A directory or a bucket. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// Ends with a slash.
    address: Arc<str>,
    place: Place,
}

/// What is underneath, for what the common client can't do.
#[derive(Clone, Debug)]
enum Place {
    Directory(Arc<Path>),
    Bucket(Arc<dyn Remote>),
}

impl Store {
    pub(crate) fn directory(client: impl ObjectStore, root: PathBuf, address: &str) -> Self {
        Self {
            inner: Arc::new(client),
            address: closed(address),
            place: Place::Directory(root.into()),
        }
    }

    pub(crate) fn bucket(client: impl Remote, address: &str) -> Self {
        let client = Arc::new(client);
        Self {
            inner: client.clone(),
            address: closed(address),
            place: Place::Bucket(client),
        }
    }

    pub(crate) fn root(&self) -> Option<&Path> {
        match &self.place {
            Place::Directory(root) => Some(root),
            Place::Bucket(_) => None,
        }
    }

    pub(crate) fn remote(&self) -> Option<&Arc<dyn Remote>> {
        match &self.place {
            Place::Directory(_) => None,
            Place::Bucket(remote) => Some(remote),
        }
    }

    /// Begins an object of several parts.
    pub(crate) async fn begin(&self, key: &Key) -> Result<Box<dyn MultipartUpload>> {
        match &self.place {
            Place::Directory(_) => self.inner.put_multipart(key).await,
            Place::Bucket(remote) => Ok(Box::new(
                RemoteUpload::begin(Arc::clone(remote), key).await?,
            )),
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
    #[must_use]
    pub fn upload(&self, key: &Key) -> Upload {
        Upload::new(self.clone(), key.clone())
    }

    /// Size and time of an object; `None` when it isn't there.
    pub async fn head(&self, key: &Key) -> Result<Option<ObjectMeta>> {
        match self.inner.head(key).await {
            Ok(meta) => Ok(Some(meta)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Which of these objects are there, in their order.
    pub async fn present(&self, keys: Vec<Key>) -> Vec<Result<bool>> {
        let mut found = vec![false; keys.len()];
        if let Place::Directory(root) = &self.place {
            // One hop to another thread for all of them.
            let paths: Vec<PathBuf> = keys.iter().map(|key| root.join(key.as_ref())).collect();
            let look = move || paths.iter().map(|path| path.is_file()).collect();
            found = tokio::task::spawn_blocking(look).await.unwrap_or(found);
        }
        // Whatever a look at its path did not find, the store itself is asked for.
        stream::iter(keys.into_iter().zip(found))
            .map(|(key, found)| {
                let store = self.clone();
                async move { Ok(found || store.head(&key).await?.is_some()) }
            })
            .buffered(AT_ONCE)
            .collect()
            .await
    }

    /// The object, to be read.
    pub async fn get(&self, key: &Key) -> Result<Content> {
        self.inner.get(key).await.map(Content::new)
    }

    /// The content, piece by piece.
    pub async fn read(&self, key: &Key) -> Result<BoxStream<'static, Result<Bytes>>> {
        Ok(self.get(key).await?.pieces())
    }

    /// The content as a whole; for small objects.
    pub async fn read_all(&self, key: &Key) -> Result<Bytes> {
        self.get(key).await?.whole().await
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

fn closed(address: &str) -> Arc<str> {
    format!("{}/", address.trim_end_matches('/')).into()
}
