//! From the bytes of a document to its text.
//!
//! What can't be read is a permanent failure with its reason, found once and never tried again; a store that is away is
//! waited for.

mod layout;
mod pdf;
mod plain;

use std::sync::Arc;

use bytes::Bytes;
use postrider::{
    breaker::{self, Breaker},
    failure::{Category, Failure},
};
use postrider_blob::{Error as StoreError, Key, Store};
use uuid::Uuid;

pub use pdf::{PdfReader, text_of_pdf_child};
pub use plain::decode;

use crate::{model::Step, stage::Trouble, store::Work};

/// The breaker's name.
pub const DEPENDENCY: &str = "protocols.store";

/// The media type of plain text.
pub const TEXT: &str = "text/plain";

/// The media type of PDF.
pub const PDF: &str = "application/pdf";

/// Where everything that belongs to protocols is, in the object store.
pub const FOLDER: &str = "protocols";

/// Where a protocol's document is.
#[must_use]
pub fn document_key(id: Uuid) -> Key {
    Key::from_iter([FOLDER, &id.to_string(), "document"])
}

/// Where the text of a PDF is, once it was read.
fn text_key(id: Uuid) -> Key {
    Key::from_iter([FOLDER, &id.to_string(), "text"])
}

/// Reads documents.
pub struct Documents {
    store: Store,
    breaker: Arc<Breaker>,
    pdf: PdfReader,
}

impl Documents {
    /// Documents of this store.
    #[must_use]
    pub fn new(store: Store, breaker: Arc<Breaker>, pdf: PdfReader) -> Self {
        Self {
            store,
            breaker,
            pdf,
        }
    }

    /// The text of a protocol's document. A PDF is read once, in extraction; grounding finds its text.
    pub(crate) async fn text(&self, id: Uuid, work: &Work, step: Step) -> Result<String, Trouble> {
        let key = Key::parse(&work.document_key).map_err(|error| missing(&error))?;
        if work.media_type != PDF {
            let text = decode(&self.read(&key).await?);
            return not_empty(text, "the document has no text");
        }
        if step == Step::Grounding
            && let Ok(text) = self.read(&text_key(id)).await
        {
            return Ok(decode(&text));
        }
        let text = self.pdf.text(self.read(&key).await?).await?;
        let text = not_empty(
            text,
            "the PDF has no text; if it is scanned, recognise its text first",
        )?;
        let kept = Bytes::from(text.clone());
        self.call(self.store.put(&text_key(id), kept)).await?;
        Ok(text)
    }

    async fn read(&self, key: &Key) -> Result<Bytes, Trouble> {
        self.call(self.store.read_all(key)).await
    }

    /// A call of the store, unless the store is left alone at the moment.
    async fn call<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Trouble> {
        let judge = |result: &Result<T, StoreError>| match result {
            Ok(_) | Err(StoreError::NotFound { .. }) => breaker::Outcome::Answered,
            Err(_) => breaker::Outcome::Unavailable,
        };
        match self.breaker.call(work, judge).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error @ StoreError::NotFound { .. })) => Err(missing(&error)),
            Ok(Err(error)) => Err(Trouble::unavailable(Failure::with_category(
                "STORE_UNAVAILABLE",
                Category::Network,
                format!("the object store can't be used: {error}"),
            ))),
            Err(open) => Err(Trouble::open(&open)),
        }
    }
}

fn missing(error: &dyn std::fmt::Display) -> Trouble {
    Trouble::permanent(
        "missing_document",
        "DOCUMENT_MISSING",
        format!("the document is not in the object store: {error}"),
    )
}

fn not_empty(text: String, why: &str) -> Result<String, Trouble> {
    if text.chars().any(char::is_alphanumeric) {
        Ok(text)
    } else {
        Err(Trouble::permanent("empty_document", "DOCUMENT_EMPTY", why))
    }
}
