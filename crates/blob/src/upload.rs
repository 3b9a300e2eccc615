//! An object that is written piece by piece.

use bytes::{Bytes, BytesMut};
use object_store::{MultipartUpload, PutPayload, Result, path::Path as Key};
use tokio::task::JoinSet;

use crate::Store;

/// How much goes into one part. All parts but the last are of this size, as some servers demand; ten thousand of them,
/// which is the most that S3 takes, make 80 GB.
const PART: usize = 8 * 1024 * 1024;

/// Parts on the way at once: one is sent while the next is filled.
const IN_FLIGHT: usize = 2;

/// An object on its way. It appears with [`finish`](Self::finish) and not before; dropped or
/// [aborted](Self::abort), it never does.
///
/// What fits into one part is written in one go, so that small objects cost one request and leave no trace when the
/// program dies. Of a larger one that was begun and never finished, [`Store::sweep`] clears away what is left.
#[derive(Debug)]
pub struct Upload {
    store: Store,
    key: Key,
    filling: BytesMut,
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    upload: Box<dyn MultipartUpload>,
    on_the_way: JoinSet<Result<()>>,
}

impl Upload {
    pub(crate) fn new(store: Store, key: Key) -> Self {
        Self {
            store,
            key,
            filling: BytesMut::new(),
            parts: None,
        }
    }

    /// Adds to the end. Waits while too much is on its way, so memory stays bounded.
    pub async fn write(&mut self, mut content: Bytes) -> Result<()> {
        while self.filling.len() + content.len() >= PART {
            let rest = content.split_off(PART - self.filling.len());
            self.filling.extend_from_slice(&content);
            content = rest;
            let part = self.filling.split().freeze();
            self.filling.reserve(PART);
            self.send(part).await?;
        }
        self.filling.extend_from_slice(&content);
        Ok(())
    }

    async fn send(&mut self, part: Bytes) -> Result<()> {
        if self.parts.is_none() {
            self.parts = Some(Parts {
                upload: self.store.begin(&self.key).await?,
                on_the_way: JoinSet::new(),
            });
        }
        let Some(parts) = &mut self.parts else {
            return Ok(());
        };
        while parts.on_the_way.len() >= IN_FLIGHT {
            parts.landed().await?;
        }
        let part = parts.upload.put_part(PutPayload::from(part));
        parts.on_the_way.spawn(part);
        Ok(())
    }

    /// Makes the object appear.
    pub async fn finish(mut self) -> Result<()> {
        let last = self.filling.split().freeze();
        if self.parts.is_some() && !last.is_empty() {
            self.send(last.clone()).await?;
        }
        let Some(mut parts) = self.parts.take() else {
            return self.store.put(&self.key, last).await;
        };
        let completed = async {
            while !parts.on_the_way.is_empty() {
                parts.landed().await?;
            }
            parts.upload.complete().await
        };
        if let Err(error) = completed.await {
            // What can't be cleared now is swept later.
            let _ = parts.upload.abort().await;
            return Err(error);
        }
        Ok(())
    }

    /// Leaves nothing behind.
    pub async fn abort(mut self) -> Result<()> {
        match self.parts.take() {
            Some(mut parts) => {
                parts.on_the_way.shutdown().await;
                parts.upload.abort().await
            }
            None => Ok(()),
        }
    }
}

impl Parts {
    async fn landed(&mut self) -> Result<()> {
        match self.on_the_way.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(source)) => Err(object_store::Error::JoinError { source }),
            None => Ok(()),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(mut parts), Ok(runtime)) =
            (self.parts.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move {
                parts.on_the_way.shutdown().await;
                let _ = parts.upload.abort().await;
            });
        }
    }
}
