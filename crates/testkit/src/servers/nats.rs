//! `nats-server` with JetStream, from the cache.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::child::Commands;
use super::server_dir::{ServerDir, cached, free_port};

/// Same as in `scripts/nats/install`.
const VERSION: &str = "2.11.10";

fn program() -> PathBuf {
    cached(&format!("nats-{VERSION}")).join("nats-server")
}

pub(super) fn version() -> Result<String, String> {
    let answer = Command::new(program())
        .arg("--version")
        .output()
        .map_err(|_| format!("nats-server {VERSION} is not in the cache"))?;
    Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

pub(super) fn commands(dir: &ServerDir) -> (String, Commands) {
    let (port, program) = (free_port(), program().display().to_string());
    let argv = [
        &*program,
        "-js",
        "-sd",
        &dir.path("data"),
        "-a",
        "127.0.0.1",
        "-p",
        &port.to_string(),
    ];
    let commands = Commands {
        helpers: Vec::new(),
        server: argv.map(str::to_owned).to_vec(),
        env: Vec::new(),
        ready: Box::new(move |_| is_ready(port)),
    };
    (format!("nats://127.0.0.1:{port}"), commands)
}

/// A ready server announces JetStream to a new connection.
fn is_ready(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut line = String::new();
    let read = BufReader::new(stream).read_line(&mut line);
    read.is_ok() && line.starts_with("INFO ") && line.contains("\"jetstream\":true")
}
