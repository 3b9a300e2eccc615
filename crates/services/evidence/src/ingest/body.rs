//! The request's body into a temporary file, never more of it than is taken.

use std::fs::File;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::Refused;
use crate::model::Invalid;

/// The longest text field of a form.
const LONGEST_FIELD: usize = 1024;

/// An upload that has arrived completely.
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
) -> Result<Received, Refused> {
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
                return Err(Invalid::new("file", "stands twice: send one archive").into());
            }
            other => {
                let name = other.unwrap_or("(no name)").to_owned();
                let problem = "is no field of this form; it has merchant_id and file";
                return Err(Invalid::new(name, problem).into());
            }
        }
    }
    Ok(Received {
        merchant_id: merchant_id.ok_or_else(|| missing("merchant_id"))?,
        archive: archive.ok_or_else(|| missing("file"))?,
    })
}

/// Writes pieces to a file that vanishes with its handle.
async fn spool<E>(pieces: impl Stream<Item = Result<Bytes, E>>, limit: u64) -> Result<File, Refused>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let mut file = tokio::fs::File::from_std(tempfile::tempfile()?);
    let mut pieces = std::pin::pin!(pieces);
    let mut size = 0_u64;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Refused::Incomplete(Box::new(error)))?;
        size = size.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if size > limit {
            return Err(Refused::TooLarge(limit));
        }
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    file.rewind().await?;
    Ok(file.into_std().await)
}

async fn text(mut field: multer::Field<'_>) -> Result<String, Refused> {
    let mut bytes = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(malformed)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > LONGEST_FIELD {
            return Err(Invalid::new("merchant_id", "is too long").into());
        }
    }
    String::from_utf8(bytes).map_err(|_| Invalid::new("merchant_id", "is not UTF-8").into())
}

fn missing(field: &'static str) -> Refused {
    Invalid::new(field, "is missing").into()
}

fn malformed(error: multer::Error) -> Refused {
    match error {
        multer::Error::StreamReadFailed(cause) => Refused::Incomplete(cause),
        error @ (multer::Error::IncompleteStream
        | multer::Error::IncompleteFieldData { .. }
        | multer::Error::IncompleteHeaders) => Refused::Incomplete(Box::new(error)),
        error => Invalid::new("form", format!("can't be read: {error}")).into(),
    }
}
