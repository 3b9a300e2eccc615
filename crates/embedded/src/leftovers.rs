//! Cleans up after a crash: orphaned server processes, a pid file, a socket.
//!
//! Promise: afterwards no remains of an earlier run are left, and only PostgreSQL processes of this
//! cluster were signalled. The caller holds the directory's lock, so no live program owns them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::Error;
use crate::layout::Layout;

/// How often to check whether processes have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A postmaster gets a fast shutdown (with a checkpoint), then an immediate one.
const POSTMASTER: &[(Option<Signal>, Duration)] = &[
    (Some(Signal::SIGINT), Duration::from_secs(30)),
    (Some(Signal::SIGQUIT), Duration::from_secs(10)),
    (Some(Signal::SIGKILL), Duration::from_secs(5)),
];

/// Children without a postmaster end by themselves; a busy one may need a signal. Their shared
/// memory is lost either way, so even SIGKILL loses nothing that was committed.
const CHILDREN: &[(Option<Signal>, Duration)] = &[
    (None, Duration::from_secs(1)),
    (Some(Signal::SIGQUIT), Duration::from_secs(5)),
    (Some(Signal::SIGKILL), Duration::from_secs(5)),
];

/// Ends the processes of an earlier run and removes its files.
pub(crate) async fn clear(layout: &Layout) -> Result<(), Error> {
    let pid_file = layout.cluster.join("postmaster.pid");
    let postmaster = read_pid(&pid_file);
    if let Some(pid) = postmaster
        && belongs(pid, &layout.cluster)
    {
        tracing::warn!(%pid, "stopping a PostgreSQL server left by an earlier run");
        end(POSTMASTER, &layout.cluster, || vec![pid]).await?;
    }
    end(CHILDREN, &layout.cluster, || members(&layout.cluster)).await?;
    // PostgreSQL itself handles a pid file of a dead process, after checking that its shared memory
    // is unused. It only fails if an unrelated process of its user has the same pid now.
    if postmaster.is_some_and(|pid| kill(pid, None) != Err(Errno::ESRCH)) {
        tracing::warn!("removing a stale postmaster.pid that names an unrelated process");
        remove_file(&pid_file)?;
    }
    remove_file(&layout.socket_dir.join(".s.PGSQL.5432"))?;
    remove_file(&layout.socket_dir.join(".s.PGSQL.5432.lock"))
}

/// Whether any process of the cluster is alive.
pub(crate) fn any(layout: &Layout) -> bool {
    !members(&layout.cluster).is_empty()
}

/// Signals the processes, with increasing force, until all have ended.
async fn end(
    steps: &[(Option<Signal>, Duration)],
    cluster: &Path,
    find: impl Fn() -> Vec<Pid>,
) -> Result<(), Error> {
    let alive = || {
        let mut pids = find();
        pids.retain(|pid| belongs(*pid, cluster));
        pids
    };
    for (signal, timeout) in steps {
        for pid in alive() {
            // It may have ended meanwhile.
            let _ = signal.map(|signal| kill(pid, signal));
        }
        let deadline = Instant::now() + *timeout;
        while Instant::now() < deadline {
            if alive().is_empty() {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    match alive().first() {
        None => Ok(()),
        Some(pid) => Err(Error::Leftover {
            pid: pid.as_raw(),
            cluster: cluster.to_owned(),
        }),
    }
}

/// The first line of `postmaster.pid`.
fn read_pid(pid_file: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(pid_file).ok()?;
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    (pid > 1).then(|| Pid::from_raw(pid))
}

/// All PostgreSQL processes of the cluster. Without /proc only the postmaster is known.
fn members(cluster: &Path) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return read_pid(&cluster.join("postmaster.pid"))
            .into_iter()
            .filter(|pid| belongs(*pid, cluster))
            .collect();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw)
        .filter(|pid| belongs(*pid, cluster))
        .collect()
}

/// Whether a live process is a PostgreSQL process of this cluster: the working directory of each is
/// the cluster. (`setpriv` is the server before its exec.)
fn belongs(pid: Pid, cluster: &Path) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    if !Path::new("/proc/self").exists() {
        return command_line_names(pid, cluster);
    }
    let Ok(name) = std::fs::read_to_string(process.join("comm")) else {
        return false;
    };
    if !["postgres", "postmaster", "setpriv"].contains(&name.trim()) {
        return false;
    }
    let inode = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let cwd = inode(&process.join("cwd"));
    cwd.is_some() && cwd == inode(cluster)
}

/// The same without /proc: the command line contains the cluster's path.
fn command_line_names(pid: Pid, cluster: &Path) -> bool {
    std::process::Command::new("ps")
        .args(["-ww", "-o", "args=", "-p", &pid.to_string()])
        .output()
        .is_ok_and(|output| {
            let line = String::from_utf8_lossy(&output.stdout);
            line.contains("postgres") && line.contains(&*cluster.to_string_lossy())
        })
}

fn remove_file(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("delete", path)(error))
        }
        _ => Ok(()),
    }
}
