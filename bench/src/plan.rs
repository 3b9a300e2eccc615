//! Which scenarios run, and with how many items.

use std::io::Write;
use std::time::Duration;

use clap::Parser;

use crate::peer::{self, Peer};

/// Scenarios without peers.
const SERVICES: [&str; 5] = ["exports", "orders", "payments", "evidence", "kafka"];

/// The command line; `make bench` passes its variables.
#[derive(Debug, Parser)]
#[command(about = "Measure Postrider side by side with its peers")]
pub struct Arguments {
    /// Short run: smaller counts, one round
    #[arg(long, env = "QUICK", value_parser = clap::builder::FalseyValueParser::new())]
    quick: bool,
    /// Only scenarios with one of these prefixes, separated by commas
    #[arg(long, env = "SCENARIO", value_delimiter = ',')]
    scenario: Vec<String>,
    /// Only these peers, separated by commas; `ours` is one of them
    #[arg(long, env = "PEERS", value_delimiter = ',')]
    peers: Vec<String>,
    /// Number of rounds
    #[arg(long, env = "ROUNDS")]
    rounds: Option<usize>,
}

/// The plan of one run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Is this the short run?
    pub quick: bool,
    /// The systems to measure.
    pub peers: Vec<Peer>,
    /// No peers were selected: then only some take part in the long scenarios.
    pub all_peers: bool,
    /// Rounds of each measurement; the median counts.
    pub rounds: usize,
    /// Items of a drain at tiny payload and at 1 KB.
    pub drain: u64,
    /// Items of a drain at 8 KB.
    pub drain_large: u64,
    /// Items of a single enqueue with eight clients.
    pub singles: u64,
    /// Maximum duration of a drain with defaults.
    pub defaults: Duration,
    /// Items of the pick-up measurement; a hundred per second.
    pub pickup: u64,
    /// Items in a deep queue, and items whose rate is measured there.
    pub depth: (u64, u64),
    /// Items of the drain with a transaction left open elsewhere.
    pub snapshot: u64,
    /// Items of the long drain.
    pub sustained: u64,
    /// Orders posted over HTTP.
    pub orders: u64,
    /// Payments, end to end.
    pub payments: u64,
    /// Files of a job: maximum number and maximum total bytes.
    pub evidence: (u64, u64),
    /// Size of the large evidence archive.
    pub archive: u64,
    /// Messages of 1 KB from the outbox to Kafka.
    pub kafka: u64,
    scenarios: Vec<String>,
}

impl Plan {
    /// The plan for these arguments.
    pub fn from(arguments: &Arguments) -> Self {
        let quick = arguments.quick;
        let wanted: Vec<&str> = arguments
            .peers
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty())
            .collect();
        // Services are compared with bare loops, not with peers.
        let services_alone = !arguments.scenario.is_empty()
            && arguments
                .scenario
                .iter()
                .all(|name| SERVICES.contains(&name.trim()));
        let peers = peer::all()
            .into_iter()
            .filter(|peer| wanted.is_empty() || wanted.contains(&peer.name))
            .filter(|peer| !services_alone || peer.name == peer::OURS)
            .collect();
        let pick = |full: u64, short: u64| if quick { short } else { full };
        Self {
            quick,
            peers,
            all_peers: wanted.is_empty(),
            rounds: arguments.rounds.unwrap_or(if quick { 1 } else { 3 }).max(1),
            drain: pick(50_000, 20_000),
            drain_large: pick(20_000, 5_000),
            singles: pick(10_000, 2_000),
            defaults: Duration::from_secs(pick(10, 4)),
            pickup: pick(1_000, 300),
            depth: (pick(1_000_000, 200_000), pick(20_000, 5_000)),
            snapshot: pick(300_000, 60_000),
            sustained: pick(1_000_000, 200_000),
            orders: pick(30_000, 6_000),
            payments: pick(10_000, 3_000),
            evidence: (pick(12_000, 3_000), pick(768 << 20, 192 << 20)),
            archive: pick(1 << 30, 128 << 20),
            kafka: pick(100_000, 20_000),
            scenarios: arguments
                .scenario
                .iter()
                .map(|name| name.trim().to_owned())
                .filter(|name| !name.is_empty())
                .collect(),
        }
    }

    /// Does this scenario run?
    pub fn wants(&self, scenario: &str) -> bool {
        self.scenarios.is_empty()
            || self
                .scenarios
                .iter()
                .any(|name| scenario.starts_with(name.as_str()))
    }
}

/// Writes one line of progress.
pub fn log(line: &str) {
    let mut out = std::io::stderr().lock();
    // A closed standard error is not a failure.
    let _ = writeln!(out, "bench: {line}");
}
