//! Configuration: one file that lists every key, then a file, the environment and flags on top of it.
//!
//! `config/default.toml` is compiled in and is the only list of keys and defaults: a key that is not
//! in it is unknown, and the structs below must mirror it exactly (a test and serde both see to that).
//! All problems of a configuration are reported at once, each with the place it came from.

mod keys;
mod layers;
mod secrets;
mod show;
#[cfg(test)]
mod tests;
mod values;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use bytesize::ByteSize;
use postrider::{breaker, inbox};
use postrider_web::{Token, Tokens};
use serde::Deserialize;

pub use layers::{Effective, Origin, Overrides, Problem, load};
pub use secrets::redact;
pub use show::{as_json, as_toml, json_as_toml};

/// The compiled-in list of every key with its default.
pub const DEFAULTS: &str = include_str!("../../../../config/default.toml");

/// No `server.body_limit` is larger: a few such bodies at once fill the memory of most machines.
const LARGEST_BODY: ByteSize = ByteSize::gib(1);

/// Everything that can be configured, as the program uses it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the embedded PostgreSQL and local files live.
    #[serde(deserialize_with = "values::optional")]
    pub data_dir: Option<PathBuf>,
    /// The HTTP server.
    pub server: Server,
    /// The database.
    pub database: Database,
    /// The console.
    pub console: crate::console::Settings,
    /// When an outside dependency is left alone for a while.
    pub breaker: breaker::Settings,
    /// How long things are kept.
    pub retention: Retention,
    /// How messages travel.
    pub transport: postrider_transports::Settings,
    /// Where files go.
    pub store: postrider_blob::Settings,
    /// Evidence.
    pub evidence: postrider_evidence::Settings,
    /// Exports.
    pub exports: postrider_exports::Settings,
    /// Orders.
    pub orders: postrider_orders::Settings,
    /// Payments.
    pub payments: postrider_payments::Settings,
    /// Protocols.
    pub protocols: postrider_protocols::Settings,
    /// Alerts.
    pub alerts: crate::alerts::Settings,
    /// Logs.
    pub log: Log,
}

/// `[server]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Largest request body.
    pub body_limit: ByteSize,
    /// Time limit of a request.
    #[serde(with = "postrider::duration")]
    pub request_timeout: Duration,
    /// How long a stopping server waits for requests in flight.
    #[serde(with = "postrider::duration")]
    pub drain_timeout: Duration,
    /// Who may call.
    pub tokens: Vec<Token>,
}

/// `[database]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Absent: the embedded PostgreSQL.
    #[serde(deserialize_with = "values::optional")]
    pub url: Option<values::DatabaseUrl>,
    /// Most connections for requests and handlers.
    pub pool_size: u32,
    /// Most connections on which workers claim and settle.
    pub worker_connections: u32,
    /// How long to wait for the database at start.
    #[serde(with = "postrider::duration")]
    pub connect_timeout: Duration,
    /// How long to wait for a free connection.
    #[serde(with = "postrider::duration")]
    pub acquire_timeout: Duration,
    /// Bring the schema up to date at start.
    pub migrate: bool,
    /// Directory of the PostgreSQL programs.
    #[serde(deserialize_with = "values::optional")]
    pub bin_dir: Option<PathBuf>,
}

/// `[retention]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// The journal of attempts and completions.
    #[serde(with = "postrider::duration")]
    pub attempts: Duration,
    /// Ids of handled messages.
    #[serde(with = "postrider::duration")]
    pub inbox: Duration,
    /// The log of published messages.
    #[serde(with = "postrider::duration")]
    pub messages: Duration,
    /// Archived dead letters.
    #[serde(with = "postrider::duration")]
    pub archive: Duration,
}

/// `[log]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Filter of what is logged.
    pub level: values::LogFilter,
    /// One line per event, in which form.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl Config {
    /// The data directory in force: the configured one, or the user's own place for such things.
    pub fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| {
            let from_env = |name: &str| {
                std::env::var_os(name)
                    .filter(|v| !v.is_empty())
                    .map(PathBuf::from)
            };
            if nix::unistd::geteuid().is_root() {
                // The server process of a root-started program is another user, who cannot enter /root.
                return PathBuf::from("/var/lib/postrider");
            }
            from_env("XDG_DATA_HOME")
                .or_else(|| from_env("HOME").map(|home| home.join(".local/share")))
                .map_or_else(
                    || PathBuf::from("postrider-data"),
                    |dir| dir.join("postrider"),
                )
        })
    }

    /// What only shows when several values are seen together. (key, what is wrong and what to do)
    fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let server = &self.server;
        if !server.listen.ip().is_loopback() && server.tokens.is_empty() {
            found.push((
                "server.listen",
                format!(
                    "{} can be reached from other machines, so callers must show a token: \
                     add one to server.tokens (`postrider token --name ops --scopes read,operate` makes it) \
                     or listen on 127.0.0.1",
                    server.listen
                ),
            ));
        }
        if let Err(problem) = Tokens::new(server.tokens.clone()) {
            found.push(("server.tokens", problem.to_string()));
        }
        for (key, duration) in [
            ("server.request_timeout", server.request_timeout),
            ("console.session", self.console.session),
            ("database.connect_timeout", self.database.connect_timeout),
            ("database.acquire_timeout", self.database.acquire_timeout),
        ] {
            if duration.is_zero() {
                found.push((key, "must be longer than zero".into()));
            }
        }
        if self.retention.inbox < inbox::MIN_RETENTION {
            found.push((
                "retention.inbox",
                "must be at least 24h, or a redelivery would not be recognised".into(),
            ));
        }
        if !(1..=LARGEST_BODY.as_u64()).contains(&server.body_limit.as_u64()) {
            let (given, most) = (server.body_limit, LARGEST_BODY);
            let problem = format!(
                "{given} is not between 1 byte and {most}: bodies are held in memory; archives and documents have limits of their own"
            );
            found.push(("server.body_limit", problem));
        }
        for (name, connections) in [
            ("database.pool_size", self.database.pool_size),
            (
                "database.worker_connections",
                self.database.worker_connections,
            ),
        ] {
            if !(2..=1000).contains(&connections) {
                found.push((name, format!("{connections} is not between 2 and 1000")));
            }
        }
        found.extend(self.transport.contradictions());
        found.extend(self.store.contradictions());
        found.extend(self.evidence.contradictions());
        found.extend(self.exports.contradictions());
        found.extend(self.orders.contradictions());
        found.extend(self.payments.contradictions());
        found.extend(self.protocols.contradictions());
        found.extend(self.alerts.contradictions());
        found
    }
}
