//! Documents: validation on upload, and their text for the stages.
//!
//! A document that can't be read is a permanent failure with a reason; an unavailable object store is waited for.

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

pub use pdf::{PdfReader, run_pdf_child};
pub use plain::decode;

use crate::{model::Step, stage::StageError, store::StepInput};

/// The name of the object store's breaker.
pub const DEPENDENCY: &str = "protocols.store";

/// A PDF starts with this, or has it within the first kilobyte.
const PDF_MARKER: &[u8] = b"%PDF-";
const PDF_MARKER_WITHIN: usize = 1024;

/// The media type of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// `text/plain`
    Text,
    /// `application/pdf`
    Pdf,
}

impl Media {
    /// Parses a content type; parameters and case are ignored.
    #[must_use]
    pub fn parse(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        [Self::Text, Self::Pdf]
            .into_iter()
            .find(|media| essence.eq_ignore_ascii_case(media.as_str()))
    }

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text/plain",
            Self::Pdf => "application/pdf",
        }
    }
}

/// Checks that an upload can be a protocol: plain text with at least one letter or digit, or a PDF. Whether a PDF is
/// readable shows only in the pipeline, where reading it is bounded.
pub fn validate(media: Media, content: &[u8]) -> Result<(), &'static str> {
    match media {
        _ if content.is_empty() => Err("is empty; upload plain text or a PDF"),
        Media::Pdf => {
            let head = &content[..content.len().min(PDF_MARKER_WITHIN)];
            let found = head
                .windows(PDF_MARKER.len())
                .any(|part| part == PDF_MARKER);
            found
                .then_some(())
                .ok_or("is not a PDF; upload plain text or a PDF")
        }
        Media::Text if !plain::is_text(content) => {
            Err("is binary data; upload plain text (UTF-8, UTF-16 or Windows-1252) or a PDF")
        }
        Media::Text if !has_text(&decode(content)) => {
            Err("has no text; upload plain text or a PDF")
        }
        Media::Text => Ok(()),
    }
}

/// The folder of this service in the object store.
pub const FOLDER: &str = "protocols";

/// The key of a protocol's document.
#[must_use]
pub fn document_key(id: Uuid) -> Key {
    Key::from_iter([FOLDER, &id.to_string(), "document"])
}

/// The key of the text of a PDF, once extracted.
fn text_key(id: Uuid) -> Key {
    Key::from_iter([FOLDER, &id.to_string(), "text"])
}

/// Reads documents from the object store.
pub struct Documents {
    store: Store,
    breaker: Arc<Breaker>,
    pdf: PdfReader,
}

impl Documents {
    /// Documents in this object store.
    #[must_use]
    pub fn new(store: Store, breaker: Arc<Breaker>, pdf: PdfReader) -> Self {
        Self {
            store,
            breaker,
            pdf,
        }
    }

    /// The text of a protocol's document. Extraction reads a PDF and stores its text for grounding.
    pub(crate) async fn text(
        &self,
        id: Uuid,
        input: &StepInput,
        step: Step,
    ) -> Result<String, StageError> {
        let key = Key::parse(&input.document_key).map_err(|error| missing(&error))?;
        if input.media_type != Media::Pdf.as_str() {
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
            "the PDF has no text; if it is scanned, run text recognition (OCR) first",
        )?;
        let copy = Bytes::from(text.clone());
        self.call(self.store.put(&text_key(id), copy)).await?;
        Ok(text)
    }

    async fn read(&self, key: &Key) -> Result<Bytes, StageError> {
        self.call(self.store.read_all(key)).await
    }

    /// Calls the object store through its breaker.
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StageError> {
        let classify = |result: &Result<T, StoreError>| match result {
            Ok(_) | Err(StoreError::NotFound { .. }) => breaker::Outcome::Answered,
            Err(_) => breaker::Outcome::Unavailable,
        };
        match self.breaker.call(call, classify).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error @ StoreError::NotFound { .. })) => Err(missing(&error)),
            Ok(Err(error)) => Err(StageError::unavailable(Failure::with_category(
                "STORE_UNAVAILABLE",
                Category::Network,
                format!("the object store is unavailable: {error}"),
            ))),
            Err(open) => Err(StageError::open(&open)),
        }
    }
}

fn missing(error: &dyn std::fmt::Display) -> StageError {
    StageError::permanent(
        "missing_document",
        "DOCUMENT_MISSING",
        format!("the document is not in the object store: {error}"),
    )
}

fn not_empty(text: String, why: &str) -> Result<String, StageError> {
    if has_text(&text) {
        Ok(text)
    } else {
        Err(StageError::permanent(
            "empty_document",
            "DOCUMENT_EMPTY",
            why,
        ))
    }
}

fn has_text(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_pdf_are_valid_and_anything_else_is_not() {
        for text in ["1. Age ≥ 18", "Größe", "a\u{0C}b", "\u{FEFF}x"] {
            assert_eq!(validate(Media::Text, text.as_bytes()), Ok(()), "{text}");
        }
        for text in [
            b"\xFF\xFEa\0g\0e\0".as_slice(),
            b"a\0g\0e\0",
            b"\x93quoted\x94",
            b"end of file\x1A",
        ] {
            assert_eq!(validate(Media::Text, text), Ok(()), "{text:?}");
        }
        for pdf in [b"%PDF-1.7\n".as_slice(), b"\n\n%PDF-1.4"] {
            assert_eq!(validate(Media::Pdf, pdf), Ok(()));
        }
        let random: Vec<u8> = (0..2_000_u32).map(|n| (n * n / 7 % 251) as u8).collect();
        for (media, content, problem) in [
            (Media::Text, b"".as_slice(), "is empty"),
            (Media::Pdf, b"", "is empty"),
            (Media::Text, b" \n\t---\n", "has no text"),
            (Media::Text, b"\xEF\xBB\xBF", "has no text"),
            (Media::Text, &random, "is binary data"),
            (Media::Pdf, &random, "is not a PDF"),
            (Media::Pdf, b"plain text", "is not a PDF"),
        ] {
            let error = validate(media, content).err().unwrap_or_default();
            assert!(error.starts_with(problem), "{media:?}: {error:?}");
            assert!(error.contains("upload plain text"), "{error}");
        }
    }
}
