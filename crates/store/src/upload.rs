//! An object that is written piece by piece.

use bytes::Bytes;
use object_store::{MultipartUpload, Result, WriteMultipart};

/// Parts on the way at once: one is sent while the next is filled.
const IN_FLIGHT: usize = 2;

/// An object on its way. It appears with [`finish`](Self::finish) and not before; dropped or
/// [aborted](Self::abort), it never does.
#[derive(Debug)]
pub struct Upload {
    parts: WriteMultipart,
}

impl Upload {
    pub(crate) fn new(upload: Box<dyn MultipartUpload>) -> Self {
        Self {
            parts: WriteMultipart::new(upload),
        }
    }

    /// Adds to the end. Waits while too much is on its way, so memory stays bounded.
    pub async fn write(&mut self, content: Bytes) -> Result<()> {
        self.parts.wait_for_capacity(IN_FLIGHT).await?;
        self.parts.put(content);
        Ok(())
    }

    /// Makes the object appear.
    pub async fn finish(self) -> Result<()> {
        self.parts.finish().await?;
        Ok(())
    }

    /// Leaves nothing behind.
    pub async fn abort(self) -> Result<()> {
        self.parts.abort().await
    }
}
