//! Runs the program: to its end, or as a server.

use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus, Output, Stdio},
    time::Duration,
};

pub use postrider_testkit::builders::data_dir;
use postrider_testkit::{
    builders::{self, Serve},
    process::Program,
};
use serde_json::Value;

/// Long enough for a loaded machine; a passing test never waits this long.
const DEADLINE: Duration = Duration::from_secs(120);

pub const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

/// The program with these arguments.
pub fn postrider(args: &[&str]) -> Command {
    let mut command = builders::program(BINARY);
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

/// Opens an account through this server, pays from it and checks that the payment succeeds.
pub async fn assert_payment_succeeds(server: &str) {
    let open = "wallet open acc-1 --currency USD --balance 100 --server";
    let pay = "payments pay --account acc-1 --amount 12.50 --currency USD --wait --json --server";
    let words = |text: &'static str| text.split(' ').chain([server]).collect::<Vec<_>>();
    let opened = run_with(&words(open)).await;
    assert!(opened.status.success(), "{}", stderr(&opened));
    let paid = run_with(&words(pay)).await;
    let answer: Value = serde_json::from_str(&stdout(&paid)).unwrap();
    assert_eq!(answer["status"], "SUCCEED", "{answer}");
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
        Self::start(&Serve::new(BINARY, data_dir).args(more).command()).await
    }

    /// Starts this command and waits until it prints its address, which means that it is ready.
    pub async fn start(command: &Command) -> Self {
        let mut program = Program::start(command);
        let line = program.line_with("listens on ").await;
        let (_, base) = line.split_once("listens on ").unwrap();
        // reqwest needs a process-wide TLS provider.
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

    /// Waits for a line of its log that contains this text.
    pub async fn log_line(&mut self, text: &str) -> String {
        self.program.line_with(text).await
    }

    /// What it has logged so far.
    pub fn log(&self) -> Vec<String> {
        self.program.output()
    }

    /// Its base URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("{}{path}", self.base))
    }

    pub fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.post(format!("{}{path}", self.base))
    }

    pub async fn json(&self, path: &str) -> Value {
        self.get(path).send().await.unwrap().json().await.unwrap()
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.program.ended().is_some()
    }

    /// Waits until it reaches the crash point that it was started with.
    pub async fn wait_for_crash_point(&mut self, point: &str) {
        let line = format!("crash point {point} fired");
        self.program.line_with(&line).await;
    }

    /// Waits until it dies by SIGKILL.
    pub async fn dies(mut self) {
        let ended = self.program.wait().await;
        assert_eq!(ended.signal(), Some(9), "{ended}");
    }

    /// Sends SIGTERM and returns the exit status.
    pub async fn terminate(mut self) -> ExitStatus {
        self.program.terminate().await
    }

    /// kill -9.
    pub async fn kill(mut self) {
        self.program.kill().await;
    }
}
