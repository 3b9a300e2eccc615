//! The first birth of a cluster: all of it or nothing.

use std::path::Path;

use tokio::process::Command;

use crate::account::Account;
use crate::binaries::Installation;
use crate::error::Error;
use crate::layout::Layout;
use crate::server::tied;
use crate::{ROLE, log};

/// How the names of unfinished clusters start.
const UNFINISHED: &str = "data.new-";

/// Makes the cluster if there is none. It is made beside its place and renamed when complete, so
/// that a crash in the middle leaves only rubbish with a name that says so, never half a cluster.
pub(crate) async fn ensure(
    layout: &Layout,
    installation: &Installation,
    account: &Account,
    throwaway: bool,
) -> Result<(), Error> {
    sweep(layout)?;
    if layout.cluster_version()?.is_some() {
        return Ok(());
    }
    let unfinished = layout
        .home
        .join(format!("{UNFINISHED}{}", std::process::id()));
    std::fs::create_dir(&unfinished).map_err(Error::io("create", &unfinished))?;
    account.take(&unfinished)?;
    initdb(&unfinished, layout, installation, account, throwaway).await?;
    std::fs::rename(&unfinished, &layout.cluster)
        .map_err(Error::io("move the new cluster to", &layout.cluster))?;
    sync_dir(&layout.home)
}

async fn initdb(
    dir: &Path,
    layout: &Layout,
    installation: &Installation,
    account: &Account,
    throwaway: bool,
) -> Result<(), Error> {
    let program = installation.program("initdb");
    let mut command = tied(&program, "KILL");
    command
        .arg("--pgdata")
        .arg(dir)
        .args(["--username", ROLE])
        .args(["--auth-local", "trust", "--auth-host", "reject"])
        // Locale C sorts by bytes: the fastest, and the only order that an upgrade of the
        // operating system cannot change under the indexes. Text is UTF-8 all the same.
        .args(["--encoding", "UTF8", "--no-locale"])
        .arg("--data-checksums");
    if throwaway {
        // Otherwise initdb does sync: nobody else would ever flush the catalogs it wrote, and a
        // power cut within the first half minute would leave a cluster that looks complete.
        command.arg("--no-sync");
    }
    account.apply(&mut command, &layout.home);
    let output = run(&mut command, &program).await?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Error::Initdb {
        status: output.status,
        output: log::last_lines(&String::from_utf8_lossy(&said)),
    })
}

async fn run(command: &mut Command, program: &Path) -> Result<std::process::Output, Error> {
    command
        .kill_on_drop(true)
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .map_err(Error::io("run", program))
}

/// Deletes what an interrupted first start left.
fn sweep(layout: &Layout) -> Result<(), Error> {
    let entries = std::fs::read_dir(&layout.home).map_err(Error::io("read", &layout.home))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            tracing::info!(path = %entry.path().display(), "deleting a half-made cluster");
            std::fs::remove_dir_all(entry.path()).map_err(Error::io("delete", entry.path()))?;
        }
    }
    Ok(())
}

/// A rename is on disk only when its directory is.
fn sync_dir(dir: &Path) -> Result<(), Error> {
    std::fs::File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(Error::io("sync", dir))
}
