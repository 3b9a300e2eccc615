//! A program with a private server, as a child process that can be killed: this test binary with
//! one test selected.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use postrider_embedded::Postgres;

use crate::support::quick;

const DIR: &str = "EMBEDDED_TEST_DIR";

pub struct Program {
    pub child: Child,
    /// The server's main process.
    pub server: u32,
    /// How to connect to it.
    pub url: String,
    /// Kept open: the child's test harness prints at the end.
    _output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a program and waits until its server is ready; an error contains its output.
    pub fn start(dir: &Path) -> Result<Self, String> {
        Self::run(Command::new(std::env::current_exe().unwrap()), dir)
    }

    /// The same as an unprivileged user, from a copy that this user can read.
    pub fn start_as(uid: u32, dir: &Path) -> Result<Self, String> {
        let copy = dir.join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let id = uid.to_string();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
            .arg(copy);
        Self::run(command, &dir.join("data"))
    }

    #[allow(
        clippy::zombie_processes,
        reason = "waited for in `kill` and `stop`, one of which every test calls"
    )]
    fn run(mut command: Command, dir: &Path) -> Result<Self, String> {
        let mut child = command
            .args(["--ignored", "--exact", "program::helper", "--nocapture"])
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).unwrap() == 0 {
                child.wait().unwrap();
                return Err(said);
            }
            // The test harness prints before our line, without a line break.
            if let Some((_, ready)) = line.split_once("READY ") {
                let (server, url) = ready.trim().split_once(' ').unwrap();
                return Ok(Self {
                    server: server.parse().unwrap(),
                    url: url.to_owned(),
                    child,
                    _output: output,
                });
            }
            said.push_str(&line);
        }
    }

    /// Kills the process and waits for its end. Its server may still be ending.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the program.
    pub fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
#[ignore = "the program that other tests start and kill"]
fn helper() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let options = quick(Path::new(&dir));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    match runtime.block_on(Postgres::start(options)) {
        Ok(postgres) => {
            println!("READY {} {}", postgres.pid().unwrap(), postgres.url());
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            runtime.block_on(postgres.stop()).unwrap();
        }
        Err(error) => println!("FAILED {error}"),
    }
}
