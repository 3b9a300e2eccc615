//! Configuration: compiled-in defaults, overridden by a file, the environment and flags.
//!
//! `config/default.toml` is compiled in and is the only list of keys and defaults: other keys are unknown, and the structs
//! below mirror it exactly, which a test and serde ensure. All problems are reported at once, each with its origin.

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

/// Maximum of `server.body_limit`: bodies are held in memory.
const MAX_BODY_LIMIT: ByteSize = ByteSize::gib(1);

/// The typed configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Directory of the embedded PostgreSQL and local files.
    #[serde(deserialize_with = "values::optional")]
    pub data_dir: Option<PathBuf>,
    /// The HTTP server.
    pub server: Server,
    /// The database.
    pub database: Database,
    /// The console.
    pub console: crate::console::Settings,
    /// Defaults of circuit breakers.
    pub breaker: breaker::Settings,
    /// Retention periods.
    pub retention: Retention,
    /// The message transport.
    pub transport: postrider_transports::Settings,
    /// The object store.
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
    /// Maximum size of a request body.
    pub body_limit: ByteSize,
    /// Timeout of a request.
    #[serde(with = "postrider::internal::duration")]
    pub request_timeout: Duration,
    /// How long a stopping server waits for requests in flight.
    #[serde(with = "postrider::internal::duration")]
    pub drain_timeout: Duration,
    /// API tokens.
    pub tokens: Vec<Token>,
}

/// `[database]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// The database; absent: the embedded PostgreSQL.
    #[serde(deserialize_with = "values::optional")]
    pub url: Option<values::DatabaseUrl>,
    /// Maximum connections for requests and handlers.
    pub pool_size: u32,
    /// Maximum connections on which workers claim and settle.
    pub worker_connections: u32,
    /// Timeout for the database at start.
    #[serde(with = "postrider::internal::duration")]
    pub connect_timeout: Duration,
    /// Timeout for a free connection.
    #[serde(with = "postrider::internal::duration")]
    pub acquire_timeout: Duration,
    /// Apply pending migrations at start.
    pub migrate: bool,
    /// Directory of the PostgreSQL programs.
    #[serde(deserialize_with = "values::optional")]
    pub bin_dir: Option<PathBuf>,
}

/// `[retention]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Attempts and completions.
    #[serde(with = "postrider::internal::duration")]
    pub attempts: Duration,
    /// Inbox: ids of handled messages.
    #[serde(with = "postrider::internal::duration")]
    pub inbox: Duration,
    /// The log of published messages.
    #[serde(with = "postrider::internal::duration")]
    pub messages: Duration,
    /// Archived dead letters.
    #[serde(with = "postrider::internal::duration")]
    pub archive: Duration,
}

/// `[log]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Log filter.
    pub level: values::LogFilter,
    /// Log format.
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl Config {
    /// The data directory: the configured one, or the user's default.
    pub fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| {
            let from_env = |name: &str| {
                std::env::var_os(name)
                    .filter(|v| !v.is_empty())
                    .map(PathBuf::from)
            };
            if nix::unistd::geteuid().is_root() {
                // Started by root, the server process runs as another user, who can't enter /root.
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

    /// Invalid combinations of values: (key, what is wrong and what to do).
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
                found.push((key, "must be greater than zero".into()));
            }
        }
        if self.retention.inbox < inbox::MIN_RETENTION {
            found.push((
                "retention.inbox",
                "must be at least 24h, or a redelivery would not be recognised".into(),
            ));
        }
        if !(1..=MAX_BODY_LIMIT.as_u64()).contains(&server.body_limit.as_u64()) {
            let (given, most) = (server.body_limit, MAX_BODY_LIMIT);
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
