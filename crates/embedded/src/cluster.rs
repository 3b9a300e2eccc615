//! Creates a cluster, all or nothing.

use std::path::Path;

use tokio::process::Command;

use crate::account::Account;
use crate::binaries::Installation;
use crate::error::Error;
use crate::layout::Layout;
use crate::server::with_pdeathsig;
use crate::{ROLE, log};

/// Name prefix of unfinished clusters.
const UNFINISHED: &str = "data.new-";

/// Creates the cluster if there is none, under another name that is changed once it is complete: a
/// crash never leaves a partial cluster in its place.
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
    account.chown(&unfinished)?;
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
    let mut command = with_pdeathsig(&program, "KILL");
    command
        .arg("--pgdata")
        .arg(dir)
        .args(["--username", ROLE])
        .args(["--auth-local", "trust", "--auth-host", "reject"])
        // Locale C sorts by bytes: fastest, and the only order that an upgrade of the operating
        // system can't change under the indexes. Text is still UTF-8.
        .args(["--encoding", "UTF8", "--no-locale"])
        .arg("--data-checksums");
    if throwaway {
        // Otherwise initdb syncs: nothing else flushes the catalogs it wrote, and a power failure
        // right after it would leave a corrupt cluster that looks complete.
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

/// Deletes clusters of interrupted first starts.
fn sweep(layout: &Layout) -> Result<(), Error> {
    let entries = std::fs::read_dir(&layout.home).map_err(Error::io("read", &layout.home))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            tracing::info!(path = %entry.path().display(), "deleting an unfinished cluster of an interrupted start");
            std::fs::remove_dir_all(entry.path()).map_err(Error::io("delete", entry.path()))?;
        }
    }
    Ok(())
}

/// A rename is durable once its directory is synced.
fn sync_dir(dir: &Path) -> Result<(), Error> {
    std::fs::File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(Error::io("sync", dir))
}
