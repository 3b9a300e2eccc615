//! Removes the leftovers of writers that crashed.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::TryStreamExt;
use object_store::{Error, ObjectStoreExt, Result, path::Path as Key};

use crate::{
    Store,
    remote::{MARKERS, Remote, UploadId},
};

impl Store {
    /// Removes temporary files and uploads that are older than this. Returns their number.
    ///
    /// In a directory these are partially written files (`name#1`), in S3 unfinished uploads. Choose an age that no active writer
    /// reaches. Safe to run anywhere, any number of times.
    pub async fn sweep(&self, older_than: Duration) -> Result<u64> {
        if let Some(root) = self.root() {
            let root = root.to_owned();
            return tokio::task::spawn_blocking(move || sweep_directory(&root, older_than))
                .await
                .map_err(|source| Error::JoinError { source })?
                .map_err(|source| Error::Generic {
                    store: "directory",
                    source: source.into(),
                });
        }
        match self.remote() {
            Some(remote) => sweep_uploads(remote, older_than).await,
            None => Ok(0),
        }
    }
}

async fn sweep_uploads(remote: &Arc<dyn Remote>, older_than: Duration) -> Result<u64> {
    let markers: Vec<_> = remote.list(Some(&Key::from(MARKERS))).try_collect().await?;
    let mut removed = 0;
    for marker in markers {
        if !is_older(marker.last_modified.into(), older_than) {
            continue;
        }
        let text = match remote.get(&marker.location).await {
            Ok(found) => found.bytes().await?,
            Err(Error::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        if let Some(upload) = std::str::from_utf8(&text)
            .ok()
            .and_then(UploadId::from_text)
            && let Err(error) = upload.abort(&**remote).await
        {
            // Servers differ in what they answer for an upload that finished long ago; the next sweep tries again.
            tracing::warn!(%error, ?upload, "aborting an unfinished upload failed; the next sweep tries again");
            if !is_older(marker.last_modified.into(), older_than * 4) {
                continue;
            }
        }
        remote.delete(&marker.location).await?;
        removed += 1;
    }
    Ok(removed)
}

fn sweep_directory(root: &Path, older_than: Duration) -> std::io::Result<u64> {
    let mut removed = 0;
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if is_temporary(&entry.path()) && sweep_file(&entry.path(), older_than)? {
                removed += 1;
            }
        }
    }
    Ok(removed)
}

fn sweep_file(path: &Path, older_than: Duration) -> std::io::Result<bool> {
    let swept = std::fs::metadata(path).and_then(|file| {
        if !is_older(file.modified()?, older_than) {
            return Ok(false);
        }
        std::fs::remove_file(path).map(|()| true)
    });
    match swept {
        // Its writer has just renamed or removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        other => other,
    }
}

/// `name#123`, the local store's name for a partially written file. No object can have such a name.
fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    let name = name.to_string_lossy();
    name.rsplit_once('#')
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn is_older(modified: SystemTime, age: Duration) -> bool {
    modified.elapsed().is_ok_and(|elapsed| elapsed >= age)
}
