//! An archive's files into the store, through bounded memory.
//!
//! One thread unpacks and hashes; this side stores. Small files go several at a time, a large one piece by piece.

use std::collections::HashMap;
use std::io::Read;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt};
use postrider_blob::{Key, Store};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{PREFIX, Refused, archive::Unpacking, archive::damaged};

/// Up to this size a file is stored in one go.
const SMALL: u64 = 512 * 1024;

/// Small files on their way at once.
const AT_ONCE: usize = 8;

/// Pieces of a large file.
const PIECE: usize = 256 * 1024;

/// Pieces between the two sides.
const WAITING: usize = 4;

/// A file that is in the store.
pub(super) struct Stored {
    pub key: Key,
    pub size: u64,
    pub sha256: String,
}

enum Step {
    /// A whole file, by its place in the list.
    Small(usize, Bytes, String),
    /// A large file begins.
    Begin(usize),
    Piece(Bytes),
    End(u64, String),
}

/// Stores every file; `written` names all that may be in the store, also when it fails half-way.
pub(super) async fn unpack(
    store: &Store,
    job: Uuid,
    unpacking: Unpacking,
    written: &mut Vec<Key>,
) -> Result<HashMap<String, Stored>, Refused> {
    let names: Vec<String> = unpacking
        .files
        .iter()
        .map(|(name, ..)| name.clone())
        .collect();
    let keys: Vec<Key> = names
        .iter()
        .enumerate()
        .map(|(n, name)| Key::from(format!("{PREFIX}/{job}/{n:06}-{}", plain(name))))
        .collect();
    let (sender, mut steps) = mpsc::channel(WAITING);
    let unpacker = tokio::task::spawn_blocking(move || send_all(unpacking, &sender));
    let mut stored = HashMap::with_capacity(names.len());
    let mut puts = FuturesUnordered::new();
    let mut large = None;
    let mut keep = |n: usize, size: u64, sha256: String| {
        let key = keys[n].clone();
        stored.insert(names[n].clone(), Stored { key, size, sha256 });
    };
    let result: Result<(), Refused> = async {
        while let Some(step) = steps.recv().await {
            match step {
                Step::Small(n, content, sha256) => {
                    if puts.len() >= AT_ONCE {
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
                Step::Piece(piece) => {
                    if let Some((_, upload)) = &mut large {
                        upload.write(piece).await?;
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
    // Let the other side end, whatever happened here; what is under way must be known to be there or not.
    drop(steps);
    let mut result = result;
    while let Some(put) = puts.next().await {
        result = result.and(put.map_err(Refused::from));
    }
    if let Some((_, upload)) = large
        && let Err(error) = upload.abort().await
    {
        tracing::debug!(%error, "an upload could not be called off");
    }
    // What is wrong with the archive explains what went wrong here, if both did.
    unpacker.await.map_err(Refused::broken)??;
    result?;
    Ok(stored)
}

/// The blocking side. Ends early, and well, when nobody listens any more.
fn send_all(mut unpacking: Unpacking, steps: &mpsc::Sender<Step>) -> Result<(), Refused> {
    for (n, (name, index, announced)) in unpacking.files.iter().enumerate() {
        let entry = unpacking.reader.by_index(*index).map_err(damaged(name))?;
        let mut source = Source {
            name,
            // One byte more than announced is a lie.
            entry: entry.take(announced.saturating_add(1)),
            announced: *announced,
            read: 0,
            hash: Sha256::new(),
        };
        let open = if *announced <= SMALL {
            let mut content = BytesMut::new();
            while let Some(piece) = source.next()? {
                content.extend_from_slice(&piece);
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
    mut source: Source<'_, impl Read>,
    steps: &mpsc::Sender<Step>,
) -> Result<Sent, Refused> {
    let mut sent = steps.blocking_send(Step::Begin(n));
    while sent.is_ok() {
        match source.next()? {
            Some(piece) => sent = steps.blocking_send(Step::Piece(piece)),
            None => {
                let (size, sha256) = source.finish()?;
                return Ok(steps.blocking_send(Step::End(size, sha256)));
            }
        }
    }
    Ok(sent)
}

/// An entry that is being read.
struct Source<'a, R> {
    name: &'a str,
    entry: R,
    announced: u64,
    read: u64,
    hash: Sha256,
}

impl<R: Read> Source<'_, R> {
    fn next(&mut self) -> Result<Option<Bytes>, Refused> {
        let mut piece = vec![0; PIECE];
        let mut filled = 0;
        while filled < PIECE {
            let read = self.entry.read(&mut piece[filled..]);
            match read.map_err(|error| Refused::entry(self.name, format!("is damaged: {error}")))? {
                0 => break,
                n => filled += n,
            }
        }
        if filled == 0 {
            return Ok(None);
        }
        piece.truncate(filled);
        self.read += u64::try_from(filled).unwrap_or(u64::MAX);
        if self.read > self.announced {
            return Err(Refused::entry(self.name, "is larger than the archive says"));
        }
        self.hash.update(&piece);
        Ok(Some(piece.into()))
    }

    fn finish(self) -> Result<(u64, String), Refused> {
        if self.read != self.announced {
            return Err(Refused::entry(
                self.name,
                "is smaller than the archive says",
            ));
        }
        Ok((self.read, hex::encode(self.hash.finalize())))
    }
}

/// The last part of a name in characters that every store and every shell takes.
fn plain(name: &str) -> String {
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
