//! The private server of a test process: a copy of a cluster that is created once per machine.
//!
//! ```text
//! <temp>/postrider-testkit-<uid>/cache-<version>     a fresh cluster, stopped
//!                               /run-<pid>-<random>  the copy that a test process runs on
//! ```

use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};
use postrider_embedded::{Options, Postgres};

/// Increase it when the cached cluster must be created again.
const CACHE_VERSION: u32 = 1;

/// No data outlives the tests, so nothing waits for the disk, and no background work runs. Commits
/// stay synchronous: they must survive a server that is killed and recovers.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("autovacuum", "off"),
    ("max_connections", "500"),
    ("shared_buffers", "64MB"),
    ("checkpoint_timeout", "1h"),
    ("max_wal_size", "4GB"),
];

/// Starts this process's server.
pub(super) async fn start() -> Postgres {
    let root = root();
    let cache = cache(&root).await;
    let run = root.join(format!(
        "run-{}-{:x}",
        std::process::id(),
        uuid::Uuid::new_v4().as_u64_pair().0
    ));
    copy(&cache, &run);
    Postgres::start(options(&run))
        .await
        .expect("start the private server of the tests")
}

/// Deletes directories of dead test processes.
pub(super) async fn sweep() {
    for entry in std::fs::read_dir(root()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix("run-")
            .and_then(|rest| rest.split('-').next()?.parse().ok());
        let Some(owner) = owner else {
            continue;
        };
        let gone = kill(Pid::from_raw(owner), None) == Err(Errno::ESRCH);
        // Another process may be removing it, too.
        if gone && postrider_embedded::remove(&entry.path()).await.is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn options(dir: &Path) -> Options {
    SETTINGS
        .iter()
        .fold(Options::new(dir), |options, (name, value)| {
            options.setting(name, value)
        })
}

/// Directory of all runs. It must belong to this user, as the temporary directory is world-writable.
fn root() -> PathBuf {
    let own = geteuid();
    let root = std::env::temp_dir().join(format!("postrider-testkit-{own}"));
    // Under root the server runs as another user, who must be able to traverse it.
    let mode = if own.is_root() { 0o711 } else { 0o700 };
    let _ = DirBuilder::new().mode(mode).create(&root);
    let metadata = std::fs::symlink_metadata(&root).expect("a directory for the tests");
    assert!(
        metadata.is_dir() && metadata.uid() == own.as_raw(),
        "{} is not a directory of this user; remove it",
        root.display()
    );
    std::fs::set_permissions(&root, Permissions::from_mode(mode)).expect("open the directory");
    root
}

/// A stopped cluster to copy, created by the first process that needs it.
async fn cache(root: &Path) -> PathBuf {
    let installed = postrider_embedded::installations().await;
    let version = installed
        .first()
        .map_or("none", |installation| &installation.version);
    let cache = root.join(format!("cache-{CACHE_VERSION}-{version}"));
    let lock = File::create(root.join("cache.lock")).expect("the lock of the cached cluster");
    lock.lock().expect("lock the cached cluster");
    if !cache.exists() {
        let unfinished = root.join("cache.new");
        let _ = std::fs::remove_dir_all(&unfinished);
        Postgres::start(options(&unfinished))
            .await
            .expect("make a cluster for the tests")
            .stop()
            .await
            .expect("stop the new cluster");
        std::fs::rename(&unfinished, &cache).expect("keep the new cluster");
    }
    cache
}

/// Copies with owners and permissions, which the standard library doesn't.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .expect("run cp");
    assert!(status.success(), "the cached cluster could not be copied");
}
