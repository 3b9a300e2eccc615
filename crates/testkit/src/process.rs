//! The program as a child process: output, readiness, signals, exit.
//!
//! Promise: the child never outlives the test, and the message of a failed wait contains its output.

use std::net::SocketAddr;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use crate::wait::{DEADLINE, eventually, within};

/// Lines of output in a failure message.
const MAX_SHOWN_LINES: usize = 40;

/// A running child process. Dropping it kills it.
#[derive(Debug)]
pub struct Program {
    child: Child,
    pid: Pid,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Program {
    /// Starts a program and collects its standard output and error, line by line.
    pub fn start(command: &Command) -> Self {
        let mut command = with_pdeathsig(command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} could not be started: {error}"));
        let lines = Arc::default();
        collect(child.stdout.take(), &lines);
        collect(child.stderr.take(), &lines);
        let pid = child.id().expect("a child that was just started has an id");
        Self {
            pid: Pid::from_raw(pid.cast_signed()),
            child,
            lines,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Output so far, both streams.
    pub fn output(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for a line that contains this text and returns it.
    pub async fn line_with(&mut self, text: &str) -> String {
        let what = format!("a line with {text:?}");
        eventually(&what, async || {
            let ended = self.ended();
            let output = self.output();
            match output.iter().find(|line| line.contains(text)) {
                Some(line) => Ok(line.clone()),
                None => Err(ProgramState::new(ended, &output)),
            }
        })
        .await
    }

    /// Waits until a GET of this path returns 200.
    pub async fn http_ready(&mut self, address: SocketAddr, path: &str) {
        let what = format!("http://{address}{path} returns 200");
        eventually(&what, async || match get(address, path).await {
            Ok(status) if status.contains(" 200 ") => Ok(()),
            answer => {
                let ended = self.ended();
                Err((answer, ProgramState::new(ended, &self.output())))
            }
        })
        .await;
    }

    /// Exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("query the child's status")
    }

    /// Sends a signal, unless the child has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            kill(self.pid, signal).expect("signal the child");
        }
    }

    /// Sends SIGSTOP.
    pub fn freeze(&mut self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Sends SIGCONT.
    pub fn thaw(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends SIGKILL and waits for the end.
    pub async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait().await;
    }

    /// Sends SIGTERM, as a service manager does, and waits for the exit status.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait().await
    }

    /// Waits until it ends.
    pub async fn wait(&mut self) -> ExitStatus {
        within(DEADLINE, "the program ends", async || match self.ended() {
            Some(status) => Ok(status),
            None => Err(ProgramState::new(None, &self.output())),
        })
        .await
    }
}

/// Shown by a failed wait.
#[derive(Debug)]
#[allow(
    dead_code,
    reason = "read through Debug, in the message of a failed wait"
)]
struct ProgramState {
    ended: Option<ExitStatus>,
    last_lines: Vec<String>,
}

impl ProgramState {
    fn new(ended: Option<ExitStatus>, output: &[String]) -> Self {
        Self {
            ended,
            last_lines: output[output.len().saturating_sub(MAX_SHOWN_LINES)..].to_vec(),
        }
    }
}

/// The same command, killed by the kernel if the test's thread ends without dropping it.
fn with_pdeathsig(command: &Command) -> tokio::process::Command {
    let setpriv = std::path::Path::new("/usr/bin/setpriv");
    let mut tied = if setpriv.exists() {
        let mut tied = tokio::process::Command::new(setpriv);
        tied.args(["--pdeathsig", "KILL"])
            .arg(command.get_program());
        tied
    } else {
        tokio::process::Command::new(command.get_program())
    };
    tied.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(name, value),
            None => tied.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        tied.current_dir(dir);
    }
    tied
}

fn collect(from: Option<impl AsyncRead + Unpin + Send + 'static>, to: &Arc<Mutex<Vec<String>>>) {
    let to = Arc::clone(to);
    let mut lines = BufReader::new(from.expect("a piped output")).lines();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            to.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
}

/// Status line of the response.
async fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
