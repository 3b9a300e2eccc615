//! One adapter process: its order, its lines, its end.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::CACHE;
use crate::install::Program;

/// What an adapter is asked to do. See `bench/README.md` for the protocol.
#[derive(Debug, Clone)]
pub struct Order {
    /// setup, singles, grouped, bulk, produce or work.
    pub action: &'static str,
    /// Items.
    pub count: u64,
    /// Bytes of a payload.
    pub bytes: usize,
    /// Clients that enqueue at once.
    pub clients: usize,
    /// Best settings, or those of a first-time user.
    pub best: bool,
    /// Items a second of a steady producer.
    pub rate: u64,
    /// Seconds until bulk items become due.
    pub delay: u64,
    /// Whether a worker notes when each item started.
    pub timeline: bool,
}

impl Order {
    /// An action with everything else at its usual value.
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

/// One line of an adapter.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// Connected and waiting for go.
    Ready {
        /// Its settings in words.
        settings: String,
    },
    /// A worker's count so far.
    Progress {
        /// Handler calls.
        handled: u64,
        /// When the first one came, in microseconds since 1970.
        first: u64,
        /// When this count was reached.
        at: u64,
    },
    /// The last line.
    Done(Done),
}

/// What an adapter has to say at its end.
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
    /// MB of memory that it took beside what it had.
    pub memory: u64,
    /// Item and moment: of the commit's return, or of the handler's start.
    pub times: Vec<(u64, u64)>,
}

/// A running adapter.
#[derive(Debug)]
pub struct Adapter {
    name: String,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Its settings in words.
    pub settings: String,
}

impl Adapter {
    /// Starts an adapter and waits until it is ready.
    pub async fn start(name: &str, program: &Program, url: &str, order: &Order) -> Result<Self> {
        let mut adapter = Self::spawn(name, program, url, order)?;
        match adapter.next().await? {
            Line::Ready { settings } => adapter.settings = settings,
            other => bail!("{name} said {other:?} before it was ready"),
        }
        Ok(adapter)
    }

    /// Runs an action that has nothing to report.
    pub async fn setup(name: &str, program: &Program, url: &str) -> Result<()> {
        let mut adapter = Self::spawn(name, program, url, &Order::new("setup", 0))?;
        let status = adapter.child.wait().await?;
        if !status.success() {
            bail!("{name} could not set itself up ({status}); see {CACHE}/adapters.log");
        }
        Ok(())
    }

    fn spawn(name: &str, program: &Program, url: &str, order: &Order) -> Result<Self> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(format!("{CACHE}/adapters.log"))?;
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .arg(order.action)
            .env("DATABASE_URL", url)
            .env("BENCH_COUNT", order.count.to_string())
            .env("BENCH_BYTES", order.bytes.to_string())
            .env("BENCH_CLIENTS", order.clients.to_string())
            .env(
                "BENCH_SETTINGS",
                if order.best { "best" } else { "default" },
            )
            .env("BENCH_RATE", order.rate.to_string())
            .env("BENCH_DELAY_SECONDS", order.delay.to_string())
            .env("BENCH_TIMELINE", if order.timeline { "1" } else { "0" })
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

    /// The process, for a look at its memory.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Says go, or stop: the same word means both, by its place.
    pub async fn tell(&mut self) -> Result<()> {
        self.input.write_all(b"go\n").await?;
        self.input.flush().await?;
        Ok(())
    }

    /// The next line; the end of the adapter is an error.
    pub async fn next(&mut self) -> Result<Line> {
        let Some(line) = self.lines.next_line().await? else {
            let status = self.child.wait().await?;
            bail!(
                "{} ended early ({status}); see {CACHE}/adapters.log",
                self.name
            );
        };
        serde_json::from_str(&line).with_context(|| format!("{} said {line}", self.name))
    }

    /// Waits for the last line and the end.
    pub async fn done(mut self) -> Result<Done> {
        let done = loop {
            if let Line::Done(done) = self.next().await? {
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
