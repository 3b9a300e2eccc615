//! The request of the harness to an adapter, in environment variables.

use std::time::Duration;

/// Why an adapter failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the request is missing or invalid.
    #[error("{name} is missing or invalid; start the adapter through the benchmark")]
    InvalidRequest {
        /// The variable.
        name: &'static str,
    },
    /// The harness ended or does not read.
    #[error("can't reach the harness")]
    Harness(#[from] std::io::Error),
    /// An event can't be written as JSON.
    #[error("can't write the report")]
    Report(#[from] serde_json::Error),
    /// The measured queue returned an error.
    #[error("the queue failed: {0}")]
    Queue(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps whatever error type the measured library has.
    pub fn queue(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Queue(source.into())
    }
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Create the tables.
    Setup,
    /// Enqueue with one commit per item.
    Singles,
    /// Enqueue with one commit per item, where the library may group the commits of its callers.
    Grouped,
    /// Enqueue in bulk.
    Bulk,
    /// Enqueue at a steady rate and report when each commit returned.
    Produce,
    /// Handle items until told to stop.
    Work,
}

/// Which settings to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// What the library's documentation recommends for throughput.
    Best,
    /// The library's defaults.
    Default,
}

/// The request.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to do.
    pub action: Action,
    /// The URL of the database.
    pub url: String,
    /// The number of items.
    pub count: u64,
    /// The size of a payload, in bytes of JSON; small values mean no padding.
    pub bytes: usize,
    /// The number of concurrent clients.
    pub clients: usize,
    /// The settings.
    pub settings: Settings,
    /// Items per second of a steady producer.
    pub rate: u64,
    /// Delay until bulk items become due.
    pub delay: Duration,
    /// Does a worker record when each item started?
    pub timeline: bool,
    /// A unique name of this adapter process.
    pub name: String,
}

impl Request {
    /// Reads the request.
    pub fn from_env() -> Result<Self, Error> {
        let action = match std::env::args().nth(1).as_deref() {
            Some("setup") => Action::Setup,
            Some("singles") => Action::Singles,
            Some("grouped") => Action::Grouped,
            Some("bulk") => Action::Bulk,
            Some("produce") => Action::Produce,
            Some("work") => Action::Work,
            _ => return Err(Error::InvalidRequest { name: "an action" }),
        };
        let settings = match text("BENCH_SETTINGS")?.as_str() {
            "best" => Settings::Best,
            _ => Settings::Default,
        };
        Ok(Self {
            action,
            url: text("DATABASE_URL")?,
            count: number("BENCH_COUNT")?,
            bytes: number("BENCH_BYTES")?,
            clients: number("BENCH_CLIENTS")?,
            settings,
            rate: number("BENCH_RATE")?,
            delay: Duration::from_secs(number("BENCH_DELAY_SECONDS")?),
            timeline: number::<u8>("BENCH_TIMELINE")? == 1,
            name: format!("bench-{}", std::process::id()),
        })
    }

    /// Are the best settings requested?
    pub fn best(&self) -> bool {
        self.settings == Settings::Best
    }

    /// The maximum number of connections that the action needs.
    pub fn connections(&self) -> u32 {
        u32::try_from(self.clients).unwrap_or(u32::MAX).max(1)
    }
}

fn text(name: &'static str) -> Result<String, Error> {
    std::env::var(name).map_err(|_| Error::InvalidRequest { name })
}

fn number<T: std::str::FromStr>(name: &'static str) -> Result<T, Error> {
    text(name)?
        .parse()
        .map_err(|_| Error::InvalidRequest { name })
}
