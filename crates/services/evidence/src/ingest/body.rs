//! Receives an upload into a temporary file, up to the limit.

use std::fs::File;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use crate::{EvidenceError, model::InvalidField};

/// Maximum size of a text field of a form.
const MAX_FIELD_SIZE: usize = 1024;

/// A complete upload.
pub(crate) struct Received {
    pub merchant_id: String,
    pub archive: File,
}

/// Reads a plain archive, or a form when the content type has a boundary.
pub(crate) async fn receive(
    body: Body,
    boundary: Option<String>,
    merchant_id: Option<String>,
    limit: u64,
) -> Result<Received, EvidenceError> {
    let Some(boundary) = boundary else {
        let merchant_id = merchant_id.ok_or_else(|| missing("merchant_id"))?;
        let archive = spool(body.into_data_stream(), limit).await?;
        return Ok(Received {
            merchant_id,
            archive,
        });
    };
    let mut form = multer::Multipart::new(body.into_data_stream(), boundary);
    let (mut merchant_id, mut archive) = (merchant_id, None);
    while let Some(field) = form.next_field().await.map_err(malformed)? {
        match field.name().map(str::to_owned).as_deref() {
            Some("merchant_id") => merchant_id = Some(text(field).await?),
            Some("file") if archive.is_none() => archive = Some(spool(field, limit).await?),
            Some("file") => {
                return Err(InvalidField::new("file", "is present twice; send one archive").into());
            }
            other => {
                let name = other.unwrap_or("(no name)").to_owned();
                let problem = "is not a field of this form; the fields are merchant_id and file";
                return Err(InvalidField::new(name, problem).into());
            }
        }
    }
    Ok(Received {
        merchant_id: merchant_id.ok_or_else(|| missing("merchant_id"))?,
        archive: archive.ok_or_else(|| missing("file"))?,
    })
}

/// Writes chunks to a file that disappears with its handle.
async fn spool<E>(
    chunks: impl Stream<Item = Result<Bytes, E>>,
    limit: u64,
) -> Result<File, EvidenceError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let mut file = tokio::fs::File::from_std(tempfile::tempfile()?);
    let mut chunks = std::pin::pin!(chunks);
    let mut size = 0_u64;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| EvidenceError::Incomplete(Box::new(error)))?;
        size = size.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        if size > limit {
            return Err(EvidenceError::TooLarge(limit));
        }
        file.write_all(&chunk).await?;
    }
    file.flush().await?;
    file.rewind().await?;
    Ok(file.into_std().await)
}

async fn text(mut field: multer::Field<'_>) -> Result<String, EvidenceError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = field.chunk().await.map_err(malformed)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_FIELD_SIZE {
            return Err(InvalidField::new("merchant_id", "is too long").into());
        }
    }
    String::from_utf8(bytes).map_err(|_| InvalidField::new("merchant_id", "is not UTF-8").into())
}

fn missing(field: &'static str) -> EvidenceError {
    InvalidField::new(field, "is missing").into()
}

fn malformed(error: multer::Error) -> EvidenceError {
    match error {
        multer::Error::StreamReadFailed(cause) => EvidenceError::Incomplete(cause),
        error @ (multer::Error::IncompleteStream
        | multer::Error::IncompleteFieldData { .. }
        | multer::Error::IncompleteHeaders) => EvidenceError::Incomplete(Box::new(error)),
        error => InvalidField::new("form", format!("can't be read: {error}")).into(),
    }
}
