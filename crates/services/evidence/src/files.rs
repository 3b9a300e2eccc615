//! Reads an artifact's content and verifies that it is what was ingested.
//!
//! A small file is read, verified and sent from memory. A large one is read twice: to verify it and to send it. So a
//! corrupted file never reaches a case, and memory stays bounded.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use postrider_blob::{Error, Key, Store};
use sha2::{Digest, Sha256};

use crate::{cases::Content, model::Code, store::attach::HeldArtifact};

/// Maximum size of a file that is held in memory.
const MAX_IN_MEMORY: u64 = 4 * 1024 * 1024;

/// A file whose content was verified.
pub(crate) struct VerifiedFile {
    pub sha256: String,
    pub size: u64,
    pub content: Content,
}

/// The key of an object from its stored form.
pub(crate) fn key(s3_key: &str) -> Key {
    // Stored keys were parsed once; anything else names an object that doesn't exist.
    Key::parse(s3_key).unwrap_or_else(|_| Key::from(s3_key))
}

/// Opens and verifies the artifact's file.
pub(crate) async fn open(
    store: &Store,
    artifact: &HeldArtifact,
) -> Result<VerifiedFile, (Code, String)> {
    let key = key(&artifact.s3_key);
    let found = store.get(&key).await.map_err(unreadable)?;
    let size = found.size();
    let expected = artifact
        .file_size_bytes
        .and_then(|size| u64::try_from(size).ok());
    if expected.is_some_and(|expected| expected != size) {
        let message = format!(
            "the object has {size} bytes, but {} were ingested",
            expected.unwrap_or_default()
        );
        return Err((Code::CorruptedFile, message));
    }
    if size <= MAX_IN_MEMORY {
        let bytes = found.bytes().await.map_err(unreadable)?;
        let sha256 = hex::encode(Sha256::digest(&bytes));
        check(artifact, &sha256)?;
        return Ok(VerifiedFile {
            sha256,
            size,
            content: Content::Whole(bytes),
        });
    }
    let mut hash = Sha256::new();
    let mut pieces = found.chunks();
    while let Some(piece) = pieces.next().await {
        hash.update(&piece.map_err(unreadable)?);
    }
    let sha256 = hex::encode(hash.finalize());
    check(artifact, &sha256)?;
    let pieces = store.read(&key).await.map_err(unreadable)?;
    let pieces = pieces.map_err(std::io::Error::other);
    Ok(VerifiedFile {
        sha256,
        size,
        content: Content::Pieces(pieces.map_ok(Bytes::from).boxed()),
    })
}

fn check(artifact: &HeldArtifact, sha256: &str) -> Result<(), (Code, String)> {
    match &artifact.sha256 {
        Some(expected) if expected != sha256 => {
            let message = "the object's SHA-256 differs from the one that was ingested".to_owned();
            Err((Code::CorruptedFile, message))
        }
        _ => Ok(()),
    }
}

fn unreadable(error: Error) -> (Code, String) {
    match error {
        Error::NotFound { path, .. } => {
            let message = format!("the object {path} is not in the store");
            (Code::ObjectMissing, message)
        }
        error => (
            Code::SystemError,
            format!("the store can't be read: {error}"),
        ),
    }
}
