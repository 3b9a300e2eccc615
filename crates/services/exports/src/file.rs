//! A file being uploaded to the store, compressed if configured.

use async_compression::tokio::write::GzipEncoder;
use bytes::Bytes;
use postrider_blob::{Error, Key, Store, Upload};
use tokio::io::AsyncWriteExt;

use crate::{gauges, model::Input};

/// The key of an input's file: `exports/YYYY/MM/DD/<job>/<name>.csv`.
pub(crate) fn key(job_key: &str, input: &Input, gzip: bool) -> Key {
    let day = job_key.get(1..9).unwrap_or("00000000");
    let ending = if gzip { "csv.gz" } else { "csv" };
    let name = format!("{}.{ending}", input.file_name());
    Key::from_iter(["exports", &day[..4], &day[4..6], &day[6..], job_key, &name])
}

/// A file under construction; it becomes visible when it is [finished](Self::finish), not before.
pub(crate) struct File {
    upload: Upload,
    gzip: Option<GzipEncoder<Vec<u8>>>,
}

impl File {
    pub fn begin(store: &Store, key: &Key, gzip: bool) -> Self {
        Self {
            upload: store.upload(key),
            gzip: gzip.then(|| GzipEncoder::new(Vec::new())),
        }
    }

    pub async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        gauges::bytes(chunk.len() as u64);
        let Some(gzip) = &mut self.gzip else {
            return self.upload.write(chunk).await;
        };
        gzip.write_all(&chunk).await.map_err(gzip_error)?;
        let packed = std::mem::take(gzip.get_mut());
        if packed.is_empty() {
            return Ok(());
        }
        self.upload.write(packed.into()).await
    }

    pub async fn finish(mut self) -> Result<(), Error> {
        if let Some(mut gzip) = self.gzip.take() {
            gzip.shutdown().await.map_err(gzip_error)?;
            self.upload.write(gzip.into_inner().into()).await?;
        }
        self.upload.finish().await
    }

    /// Removes what was uploaded; if that fails, the sweeper removes it later.
    pub async fn abort(self) {
        if let Err(error) = self.upload.abort().await {
            tracing::debug!(%error, "an aborted upload can't be removed now; the sweeper removes it");
        }
    }
}

fn gzip_error(source: std::io::Error) -> Error {
    Error::Generic {
        store: "gzip",
        source: source.into(),
    }
}
