//! An adapter process: its request, its events, its end.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::CACHE;
use crate::install::Program;

/// The request to an adapter. See `bench/README.md` for the protocol.
#[derive(Debug, Clone)]
pub struct Request {
    /// setup, singles, grouped, bulk, produce or work.
    pub action: &'static str,
    /// The number of items.
    pub count: u64,
    /// The size of a payload, in bytes.
    pub bytes: usize,
    /// The number of concurrent clients.
    pub clients: usize,
    /// Best settings, or the defaults.
    pub best: bool,
    /// Items per second of a steady producer.
    pub rate: u64,
    /// Seconds until bulk items become due.
    pub delay: u64,
    /// Does a worker record when each item started?
    pub timeline: bool,
}

impl Request {
    /// A request with default values.
    pub fn new(action: &'static str, count: u64) -> Self {
        Self {
            action,
            count,
            bytes: 0,
            clients: 1,
            best: true,
            rate: 100,
            delay: 0,
            timeline: false,
        }
    }
}

/// An event of an adapter.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// Connected, and waiting for the signal to go.
    Ready {
        /// Its settings.
        settings: String,
    },
    /// The progress of a worker.
    Progress {
        /// Handler calls.
        handled: u64,
        /// The time of the first call, in microseconds since 1970.
        first: u64,
        /// The time at which this count was reached.
        at: u64,
    },
    /// The last event.
    Done(Done),
}

/// The result of an adapter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Done {
    /// Items enqueued.
    pub items: u64,
    /// Seconds that enqueuing took.
    pub seconds: f64,
    /// Handler calls.
    pub handled: u64,
    /// The sum of the handled items' numbers.
    pub sum: u64,
    /// Additional memory used, in MB.
    pub memory: u64,
    /// Item and time: when the commit returned, or when the handler started.
    pub times: Vec<(u64, u64)>,
}

/// A running adapter.
#[derive(Debug)]
pub struct Adapter {
    name: String,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Its settings.
    pub settings: String,
}

impl Adapter {
    /// Starts an adapter and waits until it is ready.
    pub async fn start(
        name: &str,
        program: &Program,
        url: &str,
        request: &Request,
    ) -> Result<Self> {
        let mut adapter = Self::spawn(name, program, url, request)?;
        match adapter.next().await? {
            Event::Ready { settings } => adapter.settings = settings,
            other => bail!("{name} sent {other:?} before it was ready"),
        }
        Ok(adapter)
    }

    /// Runs the setup of an adapter.
    pub async fn setup(name: &str, program: &Program, url: &str) -> Result<()> {
        let mut adapter = Self::spawn(name, program, url, &Request::new("setup", 0))?;
        let status = adapter.child.wait().await?;
        if !status.success() {
            bail!("the setup of {name} failed ({status}); see {CACHE}/adapters.log");
        }
        Ok(())
    }

    fn spawn(name: &str, program: &Program, url: &str, request: &Request) -> Result<Self> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(format!("{CACHE}/adapters.log"))?;
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .arg(request.action)
            .env("DATABASE_URL", url)
            .env("BENCH_COUNT", request.count.to_string())
            .env("BENCH_BYTES", request.bytes.to_string())
            .env("BENCH_CLIENTS", request.clients.to_string())
            .env(
                "BENCH_SETTINGS",
                if request.best { "best" } else { "default" },
            )
            .env("BENCH_RATE", request.rate.to_string())
            .env("BENCH_DELAY_SECONDS", request.delay.to_string())
            .env("BENCH_TIMELINE", if request.timeline { "1" } else { "0" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start the adapter of {name}"))?;
        let input = child.stdin.take().context("an adapter has an input")?;
        let output = child.stdout.take().context("an adapter has an output")?;
        Ok(Self {
            name: name.to_owned(),
            child,
            input,
            lines: BufReader::new(output).lines(),
            settings: String::new(),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Signals go, the second time stop.
    pub async fn signal(&mut self) -> Result<()> {
        self.input.write_all(b"go\n").await?;
        self.input.flush().await?;
        Ok(())
    }

    /// The next event; the end of the adapter is an error.
    pub async fn next(&mut self) -> Result<Event> {
        let Some(line) = self.lines.next_line().await? else {
            let status = self.child.wait().await?;
            bail!(
                "{} ended early ({status}); see {CACHE}/adapters.log",
                self.name
            );
        };
        serde_json::from_str(&line).with_context(|| format!("{} sent {line}", self.name))
    }

    /// Waits for the last event and the end.
    pub async fn done(mut self) -> Result<Done> {
        let done = loop {
            if let Event::Done(done) = self.next().await? {
                break done;
            }
        };
        let status = self.child.wait().await?;
        if !status.success() {
            bail!(
                "{} failed at its end ({status}); see {CACHE}/adapters.log",
                self.name
            );
        }
        Ok(done)
    }

    /// Ends it at once; for runs whose rest does not matter.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await?;
        Ok(())
    }
}
