//! A multipart upload to S3 that is recorded before its first part is sent.
//!
//! S3 keeps the parts of an unfinished upload, invisible and billed, forever. So each upload writes a small marker object to the
//! bucket while it runs, and a sweep that finds an old marker aborts the upload. If the program crashes between the creation of
//! the upload and its marker, only the bucket's lifecycle rule (`AbortIncompleteMultipartUpload`) helps.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{FutureExt, future::BoxFuture};
use object_store::{
    Error, MultipartId, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, PutResult,
    Result, UploadPart, multipart::MultipartStore, multipart::PartId, path::Path as Key,
};

/// Prefix of the markers.
pub(crate) const MARKERS: &str = ".uploads";

/// A store with multipart uploads.
pub(crate) trait Remote: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Remote for T {}

/// An upload to S3.
#[derive(Debug)]
pub(crate) struct RemoteUpload {
    remote: Arc<dyn Remote>,
    id: UploadId,
    marker: Key,
    /// In order, filled in as they complete.
    parts: Arc<Mutex<Vec<Option<PartId>>>>,
}

/// Identifies an upload: its object's key, and the id that S3 assigned.
#[derive(Debug, Clone)]
pub(crate) struct UploadId {
    key: Key,
    id: MultipartId,
}

impl UploadId {
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

    /// Aborts the upload. Succeeds if it's finished or aborted already.
    pub(crate) async fn abort(&self, remote: &dyn Remote) -> Result<()> {
        match remote.abort_multipart(&self.key, &self.id).await {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }
}

impl RemoteUpload {
    pub(crate) async fn start(remote: Arc<dyn Remote>, key: &Key) -> Result<Self> {
        let id = remote.create_multipart(key).await?;
        let id = UploadId {
            key: key.clone(),
            id,
        };
        let marker = Key::from_iter([MARKERS.to_owned(), uuid::Uuid::new_v4().to_string()]);
        if let Err(error) = remote.put(&marker, PutPayload::from(id.to_text())).await {
            let _ = id.abort(&*remote).await;
            return Err(error);
        }
        Ok(Self {
            remote,
            id,
            marker,
            parts: Arc::default(),
        })
    }

    async fn delete_marker(&self) {
        if let Err(error) = self.remote.delete(&self.marker).await {
            tracing::debug!(%error, "deleting an upload's marker failed; the next sweep deletes it");
        }
    }
}

fn lock(parts: &Mutex<Vec<Option<PartId>>>) -> std::sync::MutexGuard<'_, Vec<Option<PartId>>> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MultipartUpload for RemoteUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let index = {
            let mut parts = lock(&self.parts);
            parts.push(None);
            parts.len() - 1
        };
        let (remote, upload) = (Arc::clone(&self.remote), self.id.clone());
        let parts = Arc::clone(&self.parts);
        async move {
            let part = remote
                .put_part(&upload.key, &upload.id, index, data)
                .await?;
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
                source: "a part of the upload is missing".into(),
            })?;
            let UploadId { key, id } = &self.id;
            let result = self.remote.complete_multipart(key, id, parts).await?;
            self.delete_marker().await;
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
            self.id.abort(&*self.remote).await?;
            self.delete_marker().await;
            Ok(())
        }
        .boxed()
    }
}
