//! Writing an object chunk by chunk.

use bytes::{Bytes, BytesMut};
use object_store::{MultipartUpload, PutPayload, Result, path::Path as Key};
use tokio::task::JoinSet;

use crate::Store;

/// Size of a part. All parts but the last have this size, which some servers require. S3's maximum of ten thousand parts makes
/// 80 GB.
const PART_SIZE: usize = 8 * 1024 * 1024;

/// Maximum number of parts in flight: one is sent while the next is filled.
const MAX_IN_FLIGHT: usize = 2;

/// An object that is being written. It becomes visible with [`finish`](Self::finish); if it's dropped or
/// [aborted](Self::abort), it never does.
///
/// An object that fits into one part is written with one request and leaves nothing behind if the program crashes. The
/// leftovers of a larger one that was never finished are removed by [`Store::sweep`].
#[derive(Debug)]
pub struct Upload {
    store: Store,
    key: Key,
    filling: BytesMut,
    multipart: Option<Multipart>,
}

#[derive(Debug)]
struct Multipart {
    upload: Box<dyn MultipartUpload>,
    in_flight: JoinSet<Result<()>>,
}

impl Upload {
    pub(crate) fn new(store: Store, key: Key) -> Self {
        Self {
            store,
            key,
            filling: BytesMut::new(),
            multipart: None,
        }
    }

    /// Appends to the object. Waits while too much is in flight, so that memory stays bounded.
    pub async fn write(&mut self, mut content: Bytes) -> Result<()> {
        while self.filling.len() + content.len() >= PART_SIZE {
            let rest = content.split_off(PART_SIZE - self.filling.len());
            self.filling.extend_from_slice(&content);
            content = rest;
            let part = self.filling.split().freeze();
            self.filling.reserve(PART_SIZE);
            self.send(part).await?;
        }
        self.filling.extend_from_slice(&content);
        Ok(())
    }

    async fn send(&mut self, part: Bytes) -> Result<()> {
        if self.multipart.is_none() {
            self.multipart = Some(Multipart {
                upload: self.store.start_multipart(&self.key).await?,
                in_flight: JoinSet::new(),
            });
        }
        let Some(multipart) = &mut self.multipart else {
            return Ok(());
        };
        while multipart.in_flight.len() >= MAX_IN_FLIGHT {
            multipart.wait_for_part().await?;
        }
        let part = multipart.upload.put_part(PutPayload::from(part));
        multipart.in_flight.spawn(part);
        Ok(())
    }

    /// Makes the object visible.
    pub async fn finish(mut self) -> Result<()> {
        let last = self.filling.split().freeze();
        if self.multipart.is_some() && !last.is_empty() {
            self.send(last.clone()).await?;
        }
        let Some(mut multipart) = self.multipart.take() else {
            return self.store.put(&self.key, last).await;
        };
        let completed = async {
            while !multipart.in_flight.is_empty() {
                multipart.wait_for_part().await?;
            }
            multipart.upload.complete().await
        };
        if let Err(error) = completed.await {
            // The sweep removes what remains.
            let _ = multipart.upload.abort().await;
            return Err(error);
        }
        Ok(())
    }

    /// Discards the object.
    pub async fn abort(mut self) -> Result<()> {
        match self.multipart.take() {
            Some(mut multipart) => {
                multipart.in_flight.shutdown().await;
                multipart.upload.abort().await
            }
            None => Ok(()),
        }
    }
}

impl Multipart {
    async fn wait_for_part(&mut self) -> Result<()> {
        match self.in_flight.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(source)) => Err(object_store::Error::JoinError { source }),
            None => Ok(()),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(mut multipart), Ok(runtime)) =
            (self.multipart.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move {
                multipart.in_flight.shutdown().await;
                let _ = multipart.upload.abort().await;
            });
        }
    }
}
