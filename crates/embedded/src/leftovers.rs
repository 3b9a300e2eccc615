//! What a crash left behind: a server without its program, server children without their server,
//! a pid file, a socket.
//!
//! The promise: afterwards nothing of an earlier run is in the way, and no process was signalled
//! that is not a PostgreSQL process of this very cluster. The caller holds the directory's lock,
//! so no living program can own what is found here.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::Error;
use crate::layout::Layout;

/// How often to look whether processes have ended.
const POLL: Duration = Duration::from_millis(20);

/// A postmaster ends by a fast shutdown (with a checkpoint), else by an immediate one.
const POSTMASTER: &[(Option<Signal>, Duration)] = &[
    (Some(Signal::SIGINT), Duration::from_secs(30)),
    (Some(Signal::SIGQUIT), Duration::from_secs(10)),
    (Some(Signal::SIGKILL), Duration::from_secs(5)),
];

/// Children without a postmaster notice that themselves and end; a busy one may need to be told.
/// Their shared memory is lost either way, so even the last step loses nothing that was committed.
const CHILDREN: &[(Option<Signal>, Duration)] = &[
    (None, Duration::from_secs(1)),
    (Some(Signal::SIGQUIT), Duration::from_secs(5)),
    (Some(Signal::SIGKILL), Duration::from_secs(5)),
];

/// Ends what is left of an earlier run and removes its traces.
pub(crate) async fn clear(layout: &Layout) -> Result<(), Error> {
    let pid_file = layout.cluster.join("postmaster.pid");
    let postmaster = read_pid(&pid_file);
    if let Some(pid) = postmaster
        && belongs(pid, &layout.cluster)
    {
        tracing::warn!(%pid, "stopping the PostgreSQL server that an earlier run left");
        end(POSTMASTER, &layout.cluster, || vec![pid]).await?;
    }
    end(CHILDREN, &layout.cluster, || members(&layout.cluster)).await?;
    // PostgreSQL itself deals with a pid file whose process is dead, and looks first whether the
    // shared memory named there is still in use. It only gives up when the number has gone to an
    // unrelated process of its user.
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

/// Signals, waits, and signals harder until none of the processes is left.
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
    for (signal, patience) in steps {
        for pid in alive() {
            // It may have ended since it was looked at; then there is nothing to signal.
            let _ = signal.map(|signal| kill(pid, signal));
        }
        let deadline = Instant::now() + *patience;
        while Instant::now() < deadline {
            if alive().is_empty() {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
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

/// Whether a living process is PostgreSQL at work in this cluster: every PostgreSQL process stays
/// in its data directory. (`setpriv` is the server in the instant before it becomes one.)
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
    let place = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let at = place(&process.join("cwd"));
    at.is_some() && at == place(cluster)
}

/// The same question where there is no /proc: its command line has the cluster's path.
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
