//! The program as its users run it: to its end, or as a server.

use std::{
    path::Path,
    process::{Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use postrider_testkit::process::Program;
use serde_json::Value;

/// Long enough for a busy machine; a test that works never waits so long.
const DEADLINE: Duration = Duration::from_secs(120);

/// A command that knows nothing of this machine's own configuration.
pub fn postrider(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    for (name, _) in std::env::vars() {
        if name.starts_with("POSTRIDER_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

/// Runs a command to its end.
pub async fn run(command: Command) -> Output {
    let mut command = tokio::process::Command::from(command);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    tokio::time::timeout(DEADLINE, output)
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
    program: Program,
    base: String,
    client: reqwest::Client,
}

impl Serving {
    /// Serves from this data directory on a free port.
    pub async fn on(data_dir: &Path, more: &[&str]) -> Self {
        let dir = data_dir.to_str().unwrap();
        let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--data-dir", dir];
        args.extend(more);
        Self::start(&postrider(&args)).await
    }

    /// Starts this command and waits until it says where it listens, which it does when it is ready.
    pub async fn start(command: &Command) -> Self {
        let mut program = Program::start(command);
        let line = program.line_with("listens on ").await;
        let (_, base) = line.split_once("listens on ").unwrap();
        // Whoever uses TLS must have chosen a provider; the program does so first thing, and so does its test.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(DEADLINE)
            .build()
            .unwrap();
        Self {
            program,
            base: base.trim().to_owned(),
            client,
        }
    }

    /// Where it serves.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("{}{path}", self.base))
    }

    pub async fn json(&self, path: &str) -> Value {
        self.get(path).send().await.unwrap().json().await.unwrap()
    }

    /// SIGTERM, and how it ended.
    pub async fn terminate(mut self) -> ExitStatus {
        self.program.terminate().await
    }

    /// kill -9.
    pub async fn kill(mut self) {
        self.program.kill().await;
    }
}
