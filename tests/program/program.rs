//! The program as a child process: started, asked, stopped, killed.

use std::{
    path::Path,
    process::{ExitStatus, Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// Long enough for a busy machine; a test that works never waits so long.
const DEADLINE: Duration = Duration::from_secs(60);

/// A command that knows nothing of this machine's own configuration.
pub fn postrider(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    for (name, _) in std::env::vars() {
        if name.starts_with("POSTRIDER_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command to its end.
pub async fn run(mut command: Command) -> Output {
    tokio::time::timeout(DEADLINE, command.output())
        .await
        .expect("the command ends")
        .expect("the command starts")
}

/// Runs the program to its end.
pub async fn run_with(args: &[&str]) -> Output {
    run(postrider(args)).await
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A directory that another user can enter too: the embedded server of a root-started program is one.
pub fn data_dir() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new()
        .prefix("postrider-")
        .tempdir()
        .unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// `postrider serve`, ready.
pub struct Serving {
    child: Child,
    pub base: String,
    client: reqwest::Client,
}

impl Serving {
    /// Serves from this data directory on a free port.
    pub async fn on(data_dir: &Path, more: &[&str]) -> Self {
        let dir = data_dir.to_str().unwrap();
        let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--data-dir", dir];
        args.extend(more);
        Self::start(postrider(&args)).await
    }

    /// Starts this command and waits until it says where it listens, which it does when it is ready.
    pub async fn start(mut command: Command) -> Self {
        // What it logs would drown the names of the tests.
        command.env("POSTRIDER_LOG__LEVEL", "error");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let base = tokio::time::timeout(DEADLINE, async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, base)) = line.split_once("listens on ") {
                    return base.trim().to_owned();
                }
            }
            panic!("the program ended before it was ready");
        })
        .await
        .expect("the program becomes ready");
        // Whoever uses TLS must have chosen a provider; the program does so first thing, and so does its test.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(DEADLINE)
            .build()
            .unwrap();
        Self {
            child,
            base,
            client,
        }
    }

    pub fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("{}{path}", self.base))
    }

    pub async fn json(&self, path: &str) -> Value {
        self.get(path).send().await.unwrap().json().await.unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().expect("it runs")).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    pub async fn ended(mut self) -> ExitStatus {
        tokio::time::timeout(DEADLINE, self.child.wait())
            .await
            .expect("the program ends")
            .unwrap()
    }

    /// SIGTERM, and how it ended.
    pub async fn terminate(self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }

    /// kill -9.
    pub async fn kill(self) {
        self.signal(Signal::SIGKILL);
        self.ended().await;
    }
}
