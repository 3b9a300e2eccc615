//! Reading an object.

use std::{fs::File, io::Read};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::{Error, GetResult, GetResultPayload, Result};

/// Size of the chunks in which a file is read. The client library's own are 8 KB, each read on another thread.
const CHUNK_SIZE: usize = 256 * 1024;

/// An object that was found but not read yet.
#[derive(Debug)]
pub struct Content(GetResult);

impl Content {
    pub(crate) const fn new(found: GetResult) -> Self {
        Self(found)
    }

    /// Size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.0.meta.size
    }

    /// The whole content in memory; for small objects.
    pub async fn bytes(self) -> Result<Bytes> {
        self.0.bytes().await
    }

    /// The content as a stream of chunks.
    #[must_use]
    pub fn chunks(self) -> BoxStream<'static, Result<Bytes>> {
        match self.0.payload {
            GetResultPayload::File(file, _) => stream::try_unfold(file, next_chunk).boxed(),
            GetResultPayload::Stream(chunks) => chunks,
        }
    }
}

async fn next_chunk(mut file: File) -> Result<Option<(Bytes, File)>> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut chunk = Vec::with_capacity(CHUNK_SIZE);
        let read = (&mut file).take(CHUNK_SIZE as u64).read_to_end(&mut chunk);
        read.map(|_| (!chunk.is_empty()).then(|| (chunk.into(), file)))
    });
    let read = reading
        .await
        .map_err(|source| Error::JoinError { source })?;
    read.map_err(|source| Error::Generic {
        store: "directory",
        source: source.into(),
    })
}
