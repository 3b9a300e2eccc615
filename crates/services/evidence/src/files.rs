//! An artifact's content, sent only if it is what was ingested.
//!
//! A small file is read, checked and sent from memory. A large one is read twice: once to check it, once to send it; so
//! a damaged file never reaches a case, whatever its size, and memory stays bounded.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use postrider_blob::{Error, Key, Store};
use sha2::{Digest, Sha256};

use crate::{cases::Content, model::Code, store::attach::Held};

/// Up to this size a file is held in memory.
const SMALL: u64 = 4 * 1024 * 1024;

/// A file that may be sent.
pub(crate) struct Opened {
    pub sha256: String,
    pub size: u64,
    pub content: Content,
}

/// The key of an object as it is stored in a row.
pub(crate) fn key(s3_key: &str) -> Key {
    // What is stored was parsed once; anything else names an object that is not there.
    Key::parse(s3_key).unwrap_or_else(|_| Key::from(s3_key))
}

/// Reads and checks. A failure is the artifact's.
pub(crate) async fn open(store: &Store, held: &Held) -> Result<Opened, (Code, String)> {
    let key = key(&held.s3_key);
    let found = store.get(&key).await.map_err(unreadable)?;
    let size = found.size();
    let told = held
        .file_size_bytes
        .and_then(|size| u64::try_from(size).ok());
    if told.is_some_and(|told| told != size) {
        let message = format!(
            "the object has {size} bytes and not the {} that were ingested",
            told.unwrap_or_default()
        );
        return Err((Code::CorruptedFile, message));
    }
    if size <= SMALL {
        let bytes = found.bytes().await.map_err(unreadable)?;
        let sha256 = hex::encode(Sha256::digest(&bytes));
        check(held, &sha256)?;
        return Ok(Opened {
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
    check(held, &sha256)?;
    let pieces = store.read(&key).await.map_err(unreadable)?;
    let pieces = pieces.map_err(std::io::Error::other);
    Ok(Opened {
        sha256,
        size,
        content: Content::Pieces(pieces.map_ok(Bytes::from).boxed()),
    })
}

fn check(held: &Held, sha256: &str) -> Result<(), (Code, String)> {
    match &held.sha256 {
        Some(told) if told != sha256 => {
            let message = "the object's SHA-256 is not the one that was ingested".to_owned();
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
