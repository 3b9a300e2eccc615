//! The order that the harness gives to an adapter, in environment variables.

use std::time::Duration;

/// What kept an adapter from its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the order is missing or unreadable.
    #[error("the order needs {name}: start the adapter through the benchmark")]
    Order {
        /// The variable.
        name: &'static str,
    },
    /// The harness is gone or does not read.
    #[error("the harness cannot be reached")]
    Harness(#[from] std::io::Error),
    /// A line of the report could not be written as JSON.
    #[error("the report cannot be written")]
    Report(#[from] serde_json::Error),
    /// The queue that is measured returned an error.
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
    /// Make the tables.
    Setup,
    /// Enqueue with one commit per item.
    Singles,
    /// Enqueue with one commit per item, where the library may group the commits of its callers.
    Grouped,
    /// Enqueue in bulk.
    Bulk,
    /// Enqueue at a steady rate and say when each commit returned.
    Produce,
    /// Handle items until told to stop.
    Work,
}

/// Whose settings to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// What the library's documentation recommends for throughput.
    Best,
    /// What a first-time user gets.
    Default,
}

/// The whole order.
#[derive(Debug, Clone)]
pub struct Order {
    /// What to do.
    pub action: Action,
    /// Where the database is.
    pub url: String,
    /// How many items.
    pub count: u64,
    /// How large a payload is, in bytes of JSON; small values mean "no padding".
    pub bytes: usize,
    /// How many clients enqueue at once.
    pub clients: usize,
    /// Whose settings.
    pub settings: Settings,
    /// Items per second of a steady producer.
    pub rate: u64,
    /// How far in the future bulk items become due; zero is now.
    pub delay: Duration,
    /// Whether a worker notes when each item started.
    pub timeline: bool,
    /// A name that no other adapter process has.
    pub name: String,
}

impl Order {
    /// Reads the order.
    pub fn from_env() -> Result<Self, Error> {
        let action = match std::env::args().nth(1).as_deref() {
            Some("setup") => Action::Setup,
            Some("singles") => Action::Singles,
            Some("grouped") => Action::Grouped,
            Some("bulk") => Action::Bulk,
            Some("produce") => Action::Produce,
            Some("work") => Action::Work,
            _ => return Err(Error::Order { name: "an action" }),
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

    /// Whether the best settings are asked for.
    pub fn best(&self) -> bool {
        self.settings == Settings::Best
    }

    /// How many connections the action needs at most.
    pub fn connections(&self) -> u32 {
        u32::try_from(self.clients).unwrap_or(u32::MAX).max(1)
    }
}

fn text(name: &'static str) -> Result<String, Error> {
    std::env::var(name).map_err(|_| Error::Order { name })
}

fn number<T: std::str::FromStr>(name: &'static str) -> Result<T, Error> {
    text(name)?.parse().map_err(|_| Error::Order { name })
}
