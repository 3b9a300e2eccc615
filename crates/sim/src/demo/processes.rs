//! The demo's processes: `postrider serve` with different roles, so that one can be killed.
//!
//! None outlives the demo: each ends with its standard input, which the kernel closes however the demo ends.

use std::{
    ffi::OsString,
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::Error;

/// How long a process may take to start, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a process may take to shut down.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The roles of the API process.
pub const API_ROLES: &str = "api,publisher,scheduler,console";

/// The roles of a worker process.
pub const WORKER_ROLES: &str = "worker";

/// How processes are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// The data directory; each process writes its log there.
    pub data_dir: PathBuf,
    /// The configuration file.
    pub config: PathBuf,
    /// The URL of the database.
    pub database_url: String,
}

/// A running process.
pub struct Process {
    /// Its name in reports.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process id.
    pub pid: u32,
    child: Child,
    /// Kept open: writing to a closed pipe would kill the process.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Launcher {
    /// Starts a process and waits until it is ready.
    pub async fn start(&self, name: &str, roles: &str, listen: &str) -> Result<Process, Error> {
        let log = self.log_file(name);
        let failed = |e: std::io::Error| Error::caused(&format!("can't start {name}"), &e);
        let stderr = File::create(&log).map_err(failed)?;
        let mut command = Command::new(&self.program);
        for (key, _) in std::env::vars_os() {
            if key.to_string_lossy().starts_with("POSTRIDER_") {
                command.env_remove(key);
            }
        }
        let mut child = command
            .args(["serve", "--until-stdin-ends"])
            .args(["--roles", roles, "--listen", listen])
            .args(["--database-url", &self.database_url])
            .args([OsString::from("--config"), self.config.clone().into()])
            .args([OsString::from("--data-dir"), self.data_dir.clone().into()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // Ctrl-C goes to the demo alone, which shuts its processes down itself.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let not_ready = || {
            let why = last_line(&log);
            Error::failed(format!("{name} did not start: {why}"))
        };
        let (Some(pid), Some(stdout)) = (child.id(), child.stdout.take()) else {
            return Err(not_ready());
        };
        let mut stdout = BufReader::new(stdout).lines();
        let address = tokio::time::timeout(START_TIMEOUT, read_address(&mut stdout)).await;
        let address = address.ok().flatten().ok_or_else(not_ready)?;
        Ok(Process {
            name: name.to_owned(),
            address,
            pid,
            child,
            _stdout: stdout,
        })
    }

    fn log_file(&self, name: &str) -> PathBuf {
        let file = format!("{}.log", name.replace(' ', "-").to_lowercase());
        self.data_dir.join(file)
    }
}

impl Process {
    /// Kills it with SIGKILL and waits for its end.
    pub async fn kill(mut self) -> Result<(), Error> {
        let killed = self.child.kill().await;
        killed.map_err(|e| Error::caused("can't kill a worker", &e))
    }

    /// Asks it to finish its work in progress and to end.
    pub fn stop(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end, and kills it if it does not end in time.
    pub async fn wait(mut self) {
        let _ = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
    }
}

/// Waits until the process prints the address it listens on, which it does when it is ready.
async fn read_address(stdout: &mut Lines<BufReader<ChildStdout>>) -> Option<SocketAddr> {
    while let Ok(Some(line)) = stdout.next_line().await {
        if let Some((_, address)) = line.split_once("http://") {
            return address.trim().trim_end_matches('/').parse().ok();
        }
    }
    None
}

/// The last line that a process logged.
fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it logged nothing").to_owned()
}
