//! Acceptance: the document goes to the object store first, then its row and the event PROTOCOL_UPLOADED commit together.
//!
//! A crash between the two leaves a document without a row, which the cleaner removes.

use bytes::Bytes;
use postrider::{Error, digest::Digest, failure::storable};
use postrider_blob::Store;
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    ProtocolError,
    document::{self, Media},
    gauges,
    model::{MAX_TITLE_CHARS, Status, Uploaded},
    store::{self, NewProtocol},
};

/// The maximum length of a stored file name, in bytes.
const MAX_FILE_NAME_BYTES: usize = 255;

/// A document to accept.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Its title.
    pub title: String,
    /// Its media type.
    pub media: Media,
    /// The name of the uploaded file.
    pub file_name: Option<String>,
    /// Its content.
    pub content: Bytes,
}

pub(super) async fn accept(
    pool: &PgPool,
    store: &Store,
    upload: Upload,
) -> Result<Uploaded, ProtocolError> {
    let title = normalize_title(&upload.title).map_err(|problem| ProtocolError::Invalid {
        field: "title",
        problem,
    })?;
    document::validate(upload.media, &upload.content).map_err(|problem| {
        ProtocolError::Invalid {
            field: "document",
            problem: problem.to_owned(),
        }
    })?;
    // Time-ordered ids keep the primary key's index compact.
    let id = Uuid::now_v7();
    let key = document::document_key(id);
    let name = upload.file_name.as_deref();
    let new = NewProtocol {
        id,
        title: &title,
        document_key: key.as_ref(),
        media_type: upload.media.as_str(),
        metadata: json!({ "document": {
            "media_type": upload.media.as_str(),
            "size": upload.content.len(),
            "sha256": Digest::of_bytes(&upload.content).to_string(),
            "file_name": name.map(|name| storable(name, MAX_FILE_NAME_BYTES)),
        } }),
    };
    store.put(&key, upload.content).await?;
    let written = write(pool, &new).await;
    if let Err(ProtocolError::Engine(error)) = &written
        && !error.is_transient()
    {
        // Certainly not committed. After any other error that is unknown, and the cleaner decides.
        let _ = store.delete(&key).await;
    }
    written?;
    gauges::uploaded(1);
    tracing::info!(protocol = %id, media_type = new.media_type, "protocol uploaded");
    Ok(Uploaded {
        id,
        title,
        status: Status::Uploaded,
    })
}

async fn write(pool: &PgPool, new: &NewProtocol<'_>) -> Result<(), ProtocolError> {
    let mut tx = pool.begin().await?;
    store::insert(&mut tx, new).await?;
    postrider_crashpoint::point!("protocols.before_accept").map_err(Error::from)?;
    tx.commit().await?;
    postrider_crashpoint::point!("protocols.after_accept").map_err(Error::from)?;
    Ok(())
}

fn normalize_title(given: &str) -> Result<String, String> {
    let title = given.split_whitespace().collect::<Vec<_>>().join(" ");
    if title.is_empty() {
        return Err("is missing".to_owned());
    }
    if title.chars().count() > MAX_TITLE_CHARS {
        return Err(format!("has more than {MAX_TITLE_CHARS} characters"));
    }
    if title.chars().any(char::is_control) {
        return Err("contains control characters".to_owned());
    }
    Ok(title)
}
