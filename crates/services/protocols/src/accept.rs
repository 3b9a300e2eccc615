//! Acceptance: the document in the object store first, then its row and the event PROTOCOL_UPLOADED in one transaction.
//!
//! A crash between the two leaves a document that no row names; the sweep removes it.

use bytes::Bytes;
use postrider::{Error, digest::Digest, failure::storable};
use postrider_blob::{Error as StoreError, Store};
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    counters,
    document::{self, PDF, TEXT},
    model::{LONGEST_TITLE, Status, Uploaded},
    store::{self, New},
};

/// The longest name of a file that is remembered, in bytes.
const LONGEST_NAME: usize = 255;

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// `text/plain`
    Text,
    /// `application/pdf`
    Pdf,
}

impl Media {
    /// The media type of this name, without regard to parameters and case.
    #[must_use]
    pub fn of(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case(TEXT) {
            Some(Self::Text)
        } else if essence.eq_ignore_ascii_case(PDF) {
            Some(Self::Pdf)
        } else {
            None
        }
    }

    /// The media type's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => TEXT,
            Self::Pdf => PDF,
        }
    }
}

/// A document to accept.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Its title.
    pub title: String,
    /// What it is.
    pub media: Media,
    /// The name of the file that it came in.
    pub file_name: Option<String>,
    /// Its content.
    pub content: Bytes,
}

/// Why a document was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum NotAccepted {
    /// The title can't be taken.
    #[error("the title {0}")]
    Title(String),
    /// The object store failed.
    #[error("the document can't be stored")]
    Store(#[from] StoreError),
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<sqlx::Error> for NotAccepted {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error.into())
    }
}

/// Accepts a document; returns when that is durable.
pub(crate) async fn accept(
    pool: &PgPool,
    store: &Store,
    upload: Upload,
) -> Result<Uploaded, NotAccepted> {
    let title = title(&upload.title)?;
    // Time-ordered ids keep the primary key's index compact.
    let id = Uuid::now_v7();
    let key = document::document_key(id);
    let name = upload.file_name.as_deref();
    let new = New {
        id,
        title: &title,
        document_key: key.as_ref(),
        media_type: upload.media.as_str(),
        metadata: json!({ "document": {
            "media_type": upload.media.as_str(),
            "size": upload.content.len(),
            "sha256": Digest::of_bytes(&upload.content).to_string(),
            "file_name": name.map(|name| storable(name, LONGEST_NAME)),
        } }),
    };
    store.put(&key, upload.content).await?;
    let written = write(pool, &new).await;
    if let Err(NotAccepted::Engine(error)) = &written
        && !error.is_transient()
    {
        // Certainly not committed. After anything else nobody knows, and the sweep decides.
        let _ = store.delete(&key).await;
    }
    written?;
    counters::uploaded(1);
    tracing::info!(protocol = %id, media_type = new.media_type, "protocol uploaded");
    Ok(Uploaded {
        id,
        title,
        status: Status::Uploaded,
    })
}

async fn write(pool: &PgPool, new: &New<'_>) -> Result<(), NotAccepted> {
    let mut tx = pool.begin().await?;
    store::insert(&mut tx, new).await?;
    postrider_crashpoint::point!("protocols.before_accept").map_err(Error::from)?;
    tx.commit().await?;
    postrider_crashpoint::point!("protocols.after_accept").map_err(Error::from)?;
    Ok(())
}

fn title(given: &str) -> Result<String, NotAccepted> {
    let title = given.split_whitespace().collect::<Vec<_>>().join(" ");
    if title.is_empty() {
        return Err(NotAccepted::Title("is missing".to_owned()));
    }
    if title.chars().count() > LONGEST_TITLE {
        let most = format!("has more than {LONGEST_TITLE} characters");
        return Err(NotAccepted::Title(most));
    }
    if title.chars().any(char::is_control) {
        let wrong = "holds characters that can't be shown".to_owned();
        return Err(NotAccepted::Title(wrong));
    }
    Ok(title)
}
