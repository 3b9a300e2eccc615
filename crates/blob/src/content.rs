//! An object that is read.

use std::{fs::File, io::Read};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::{Error, GetResult, GetResultPayload, Result};

/// A file is read in pieces of this size. The client library's own are of 8 KB, each fetched from another thread.
const PIECE: usize = 256 * 1024;

/// An object that was found, not read yet.
#[derive(Debug)]
pub struct Content(GetResult);

impl Content {
    pub(crate) const fn new(found: GetResult) -> Self {
        Self(found)
    }

    /// In bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.0.meta.size
    }

    /// All of it in memory; for small objects.
    pub async fn whole(self) -> Result<Bytes> {
        self.0.bytes().await
    }

    /// Piece by piece.
    #[must_use]
    pub fn pieces(self) -> BoxStream<'static, Result<Bytes>> {
        match self.0.payload {
            GetResultPayload::File(file, _) => stream::try_unfold(file, next).boxed(),
            GetResultPayload::Stream(pieces) => pieces,
        }
    }
}

async fn next(mut file: File) -> Result<Option<(Bytes, File)>> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut piece = Vec::with_capacity(PIECE);
        let read = (&mut file).take(PIECE as u64).read_to_end(&mut piece);
        read.map(|_| (!piece.is_empty()).then(|| (piece.into(), file)))
    });
    let read = reading
        .await
        .map_err(|source| Error::JoinError { source })?;
    read.map_err(|source| Error::Generic {
        store: "directory",
        source: source.into(),
    })
}
