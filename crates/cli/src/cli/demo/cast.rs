//! The processes on the stage: this very program, `postrider serve` with roles, so that one can be killed.
//!
//! None outlives the demo: each ends when its standard input does, which the kernel closes however the demo ends.

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

use crate::exit::{Exit, Failure};

/// How long a process may take to start, on a busy machine.
const START: Duration = Duration::from_secs(120);

/// How long one may take to end in order.
const END: Duration = Duration::from_secs(20);

/// What the API's process does: all that is not the workers' part.
pub const FRONT: &str = "api,publisher,scheduler,console";

/// What a worker's process does.
pub const WORKER: &str = "worker";

/// How processes of the demo are started.
#[derive(Debug, Clone)]
pub struct Casting {
    /// The data directory; each process writes its log there.
    pub data_dir: PathBuf,
    /// The configuration.
    pub config: PathBuf,
    /// The database.
    pub database_url: String,
}

/// A process that serves.
pub struct Part {
    /// What people call it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its number.
    pub pid: u32,
    child: Child,
    /// Kept open: whoever writes to a closed pipe dies of it.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Casting {
    /// Starts a process and waits until it is ready.
    pub async fn start(&self, name: &str, roles: &str, listen: &str) -> Result<Part, Failure> {
        let log = self.log(name);
        let cant = |doing: &str, e: &std::io::Error| {
            Failure::caused(Exit::Failed, &format!("the {name} can't be {doing}"), e)
        };
        let stderr = File::create(&log).map_err(|e| cant("logged", &e))?;
        let program = std::env::current_exe().map_err(|e| cant("found", &e))?;
        let mut command = Command::new(program);
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
            // An interrupt from the keyboard is for the demo alone, which ends its processes in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| cant("started", &e))?;
        let gone = || {
            let why = last_line(&log);
            Failure::new(Exit::Failed, format!("the {name} does not start: {why}"))
        };
        let (Some(pid), Some(stdout)) = (child.id(), child.stdout.take()) else {
            return Err(gone());
        };
        let mut stdout = BufReader::new(stdout).lines();
        let address = tokio::time::timeout(START, listens(&mut stdout)).await;
        let address = address.ok().flatten().ok_or_else(gone)?;
        Ok(Part {
            name: name.to_owned(),
            address,
            pid,
            child,
            _stdout: stdout,
        })
    }

    fn log(&self, name: &str) -> PathBuf {
        let file = format!("{}.log", name.replace(' ', "-").to_lowercase());
        self.data_dir.join(file)
    }
}

impl Part {
    /// kill -9; it is gone when this returns.
    pub async fn kill(mut self) -> Result<(), Failure> {
        let killed = self.child.kill().await;
        killed.map_err(|e| Failure::caused(Exit::Failed, "a worker can't be killed", &e))
    }

    /// Tells it to finish what it holds and to end.
    pub fn dismiss(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end. One that does not end in time is killed.
    pub async fn gone(mut self) {
        let _ = tokio::time::timeout(END, self.child.wait()).await;
    }
}

/// Waits until the process says where it listens, which it does when it is ready.
async fn listens(stdout: &mut Lines<BufReader<ChildStdout>>) -> Option<SocketAddr> {
    while let Ok(Some(line)) = stdout.next_line().await {
        if let Some((_, address)) = line.split_once("listens on http://") {
            return address.trim().parse().ok();
        }
    }
    None
}

/// The last thing that a process said.
fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it says nothing").to_owned()
}
