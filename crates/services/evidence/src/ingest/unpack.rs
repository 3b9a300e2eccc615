//! Unpacks an archive into the store with bounded memory.
//!
//! A blocking thread unpacks and hashes, an async task stores. Small files are stored concurrently, large ones in chunks.

use std::collections::HashMap;
use std::io::Read;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt};
use postrider_blob::{Key, Store};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{PREFIX, archive::Unpacking, archive::damaged};
use crate::EvidenceError;

/// Maximum size of a file that is stored in one call.
const MAX_SINGLE_PUT: u64 = 512 * 1024;

/// Maximum concurrent uploads of small files.
const MAX_CONCURRENT_PUTS: usize = 8;

/// Size of a chunk of a large file.
const CHUNK_SIZE: usize = 256 * 1024;

/// Number of chunks buffered between the thread and the task.
const CHANNEL_CAPACITY: usize = 4;

/// A file that is in the store.
pub(super) struct Stored {
    pub key: Key,
    pub size: u64,
    pub sha256: String,
}

enum Step {
    /// A whole file, by its index.
    Small(usize, Bytes, String),
    /// The start of a large file.
    Begin(usize),
    Chunk(Bytes),
    End(u64, String),
}

/// Stores every file; `written` gets the keys of everything that may be in the store, also on failure.
pub(super) async fn unpack(
    store: &Store,
    job: Uuid,
    unpacking: Unpacking,
    written: &mut Vec<Key>,
) -> Result<HashMap<String, Stored>, EvidenceError> {
    let names: Vec<String> = unpacking
        .files
        .iter()
        .map(|(name, ..)| name.clone())
        .collect();
    let keys: Vec<Key> = names
        .iter()
        .enumerate()
        .map(|(n, name)| Key::from(format!("{PREFIX}/{job}/{n:06}-{}", sanitize(name))))
        .collect();
    let (sender, mut steps) = mpsc::channel(CHANNEL_CAPACITY);
    let unpacker = tokio::task::spawn_blocking(move || send_all(unpacking, &sender));
    let mut stored = HashMap::with_capacity(names.len());
    let mut puts = FuturesUnordered::new();
    let mut large = None;
    let mut keep = |n: usize, size: u64, sha256: String| {
        let key = keys[n].clone();
        stored.insert(names[n].clone(), Stored { key, size, sha256 });
    };
    let result: Result<(), EvidenceError> = async {
        while let Some(step) = steps.recv().await {
            match step {
                Step::Small(n, content, sha256) => {
                    if puts.len() >= MAX_CONCURRENT_PUTS {
                        let _: Option<()> = puts.next().await.transpose()?;
                    }
                    written.push(keys[n].clone());
                    keep(n, u64::try_from(content.len()).unwrap_or(u64::MAX), sha256);
                    let key = keys[n].clone();
                    puts.push(async move { store.put(&key, content).await });
                }
                Step::Begin(n) => {
                    written.push(keys[n].clone());
                    large = Some((n, store.upload(&keys[n])));
                }
                Step::Chunk(chunk) => {
                    if let Some((_, upload)) = &mut large {
                        upload.write(chunk).await?;
                    }
                }
                Step::End(size, sha256) => {
                    if let Some((n, upload)) = large.take() {
                        upload.finish().await?;
                        keep(n, size, sha256);
                    }
                }
            }
        }
        Ok(())
    }
    .await;
    // Let the thread end, and wait for uploads in progress: their outcome must be known.
    drop(steps);
    let mut result = result;
    while let Some(put) = puts.next().await {
        result = result.and(put.map_err(EvidenceError::from));
    }
    if let Some((_, upload)) = large
        && let Err(error) = upload.abort().await
    {
        tracing::debug!(%error, "an upload can't be aborted now; the sweep removes it");
    }
    // If both sides failed, the archive is the cause.
    unpacker.await.map_err(EvidenceError::internal)??;
    result?;
    Ok(stored)
}

/// The blocking side. Ends early without an error when the receiver is gone.
fn send_all(mut unpacking: Unpacking, steps: &mpsc::Sender<Step>) -> Result<(), EvidenceError> {
    for (n, (name, index, declared)) in unpacking.files.iter().enumerate() {
        let entry = unpacking.reader.by_index(*index).map_err(damaged(name))?;
        let mut source = EntryReader {
            name,
            // One byte more shows that the declared size is wrong.
            entry: entry.take(declared.saturating_add(1)),
            declared: *declared,
            read: 0,
            hash: Sha256::new(),
        };
        let open = if *declared <= MAX_SINGLE_PUT {
            let mut content = BytesMut::new();
            while let Some(chunk) = source.next()? {
                content.extend_from_slice(&chunk);
            }
            let (_, sha256) = source.finish()?;
            steps.blocking_send(Step::Small(n, content.freeze(), sha256))
        } else {
            send_large(n, source, steps)?
        };
        if open.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

type Sent = Result<(), mpsc::error::SendError<Step>>;

fn send_large(
    n: usize,
    mut source: EntryReader<'_, impl Read>,
    steps: &mpsc::Sender<Step>,
) -> Result<Sent, EvidenceError> {
    let mut sent = steps.blocking_send(Step::Begin(n));
    while sent.is_ok() {
        match source.next()? {
            Some(chunk) => sent = steps.blocking_send(Step::Chunk(chunk)),
            None => {
                let (size, sha256) = source.finish()?;
                return Ok(steps.blocking_send(Step::End(size, sha256)));
            }
        }
    }
    Ok(sent)
}

/// Reads an entry.
struct EntryReader<'a, R> {
    name: &'a str,
    entry: R,
    declared: u64,
    read: u64,
    hash: Sha256,
}

impl<R: Read> EntryReader<'_, R> {
    fn next(&mut self) -> Result<Option<Bytes>, EvidenceError> {
        let mut chunk = vec![0; CHUNK_SIZE];
        let mut filled = 0;
        while filled < CHUNK_SIZE {
            let read = self.entry.read(&mut chunk[filled..]);
            match read
                .map_err(|error| EvidenceError::entry(self.name, format!("is damaged: {error}")))?
            {
                0 => break,
                n => filled += n,
            }
        }
        if filled == 0 {
            return Ok(None);
        }
        chunk.truncate(filled);
        self.read += u64::try_from(filled).unwrap_or(u64::MAX);
        if self.read > self.declared {
            return Err(EvidenceError::entry(
                self.name,
                "is larger than declared in the archive",
            ));
        }
        self.hash.update(&chunk);
        Ok(Some(chunk.into()))
    }

    fn finish(self) -> Result<(u64, String), EvidenceError> {
        if self.read != self.declared {
            return Err(EvidenceError::entry(
                self.name,
                "is smaller than declared in the archive",
            ));
        }
        Ok((self.read, hex::encode(self.hash.finalize())))
    }
}

/// The last part of a name, in characters that every store and shell accepts.
fn sanitize(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
            c
        } else {
            '_'
        }
    };
    last.chars().take(100).map(clean).collect()
}
