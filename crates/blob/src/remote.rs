//! A multipart upload to S3 that is known before its first part leaves.
//!
//! S3 keeps the parts of an upload that nobody finishes, invisible and billed, for ever. So each upload leaves a small
//! marker in the bucket while it runs, which names it; whoever finds an old marker can abort the upload. Should the
//! program die in the moment between the upload's beginning and its marker, the bucket's lifecycle rule is left
//! (`AbortIncompleteMultipartUpload`).

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{FutureExt, future::BoxFuture};
use object_store::{
    Error, MultipartId, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, PutResult,
    Result, UploadPart, multipart::MultipartStore, multipart::PartId, path::Path as Key,
};

/// Where markers are.
pub(crate) const MARKERS: &str = ".uploads";

/// What S3 needs beyond an ordinary store.
pub(crate) trait Remote: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Remote for T {}

/// An upload to S3.
#[derive(Debug)]
pub(crate) struct RemoteUpload {
    remote: Arc<dyn Remote>,
    name: Name,
    marker: Key,
    /// By their order, filled in as they land.
    parts: Arc<Mutex<Vec<Option<PartId>>>>,
}

/// Which upload: the object that it makes, and its id.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    key: Key,
    id: MultipartId,
}

impl Name {
    fn to_text(&self) -> String {
        format!("{}\n{}", self.key, self.id)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (key, id) = text.split_once('\n')?;
        Some(Self {
            key: Key::parse(key).ok()?,
            id: id.to_owned(),
        })
    }

    /// Aborts the upload; one that is finished or gone already is fine.
    pub(crate) async fn abort(&self, remote: &dyn Remote) -> Result<()> {
        match remote.abort_multipart(&self.key, &self.id).await {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }
}

impl RemoteUpload {
    pub(crate) async fn begin(remote: Arc<dyn Remote>, key: &Key) -> Result<Self> {
        let id = remote.create_multipart(key).await?;
        let name = Name {
            key: key.clone(),
            id,
        };
        let marker = Key::from_iter([MARKERS.to_owned(), uuid::Uuid::new_v4().to_string()]);
        if let Err(error) = remote.put(&marker, PutPayload::from(name.to_text())).await {
            let _ = name.abort(&*remote).await;
            return Err(error);
        }
        Ok(Self {
            remote,
            name,
            marker,
            parts: Arc::default(),
        })
    }

    async fn forget(&self) {
        if let Err(error) = self.remote.delete(&self.marker).await {
            tracing::debug!(%error, "a marker of an upload stays until the sweep");
        }
    }
}

fn lock(parts: &Mutex<Vec<Option<PartId>>>) -> std::sync::MutexGuard<'_, Vec<Option<PartId>>> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

// Written out, because the trait is made of boxed futures.
impl MultipartUpload for RemoteUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let index = {
            let mut parts = lock(&self.parts);
            parts.push(None);
            parts.len() - 1
        };
        let (remote, name) = (Arc::clone(&self.remote), self.name.clone());
        let parts = Arc::clone(&self.parts);
        async move {
            let part = remote.put_part(&name.key, &name.id, index, data).await?;
            lock(&parts)[index] = Some(part);
            Ok(())
        }
        .boxed()
    }

    fn complete<'s, 'f>(&'s mut self) -> BoxFuture<'f, Result<PutResult>>
    where
        's: 'f,
        Self: 'f,
    {
        async move {
            let parts: Option<Vec<PartId>> = std::mem::take(&mut *lock(&self.parts))
                .into_iter()
                .collect();
            let parts = parts.ok_or_else(|| Error::Generic {
                store: "S3",
                source: "a part of the upload did not arrive".into(),
            })?;
            let Name { key, id } = &self.name;
            let result = self.remote.complete_multipart(key, id, parts).await?;
            self.forget().await;
            Ok(result)
        }
        .boxed()
    }

    fn abort<'s, 'f>(&'s mut self) -> BoxFuture<'f, Result<()>>
    where
        's: 'f,
        Self: 'f,
    {
        async move {
            self.name.abort(&*self.remote).await?;
            self.forget().await;
            Ok(())
        }
        .boxed()
    }
}
