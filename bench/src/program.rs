//! `postrider serve` on a database of the benchmark's cluster.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::CACHE;

/// Timeout of the start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running `postrider serve`; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// Its address.
    pub address: SocketAddr,
    child: Child,
}

impl Server {
    /// Starts it with these roles on this database.
    pub async fn start(database_url: &str, roles: &str) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("postrider");
        if !program.exists() {
            bail!(
                "{} is missing: build the package postrider with the same profile",
                program.display()
            );
        }
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(format!("{CACHE}/adapters.log"))?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--roles", roles])
            .args(["--database-url", database_url])
            .arg("--data-dir")
            .arg(std::path::absolute(format!("{CACHE}/server"))?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start postrider serve")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line())
            .await
            .context("postrider serve did not start in time")??
            .context("postrider serve ended early; see adapters.log")?;
        let (_, address) = line
            .split_once("http://")
            .with_context(|| format!("postrider serve printed {line:?}"))?;
        let address = address.trim_end_matches('/').parse()?;
        Ok(Self { address, child })
    }

    /// CPU time used so far.
    pub fn cpu(&self) -> Result<Duration> {
        let id = self.child.id().context("postrider serve has ended")?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        // The name, which may contain spaces, is in parentheses; user and system time are the 12th and 13th field after it.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Kills it.
    pub async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("end postrider serve")
    }
}
