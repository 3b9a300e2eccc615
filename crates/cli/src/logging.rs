//! Logs: one line per event on standard error, as text or as JSON. Secrets are never logged.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Log, LogFormat};

/// Starts logging, once per process.
pub fn start(log: &Log) {
    let filter = EnvFilter::new(log.level.directives());
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start in one process, as in tests, keeps the first one.
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(colours(&std::io::stderr())).try_init(),
    };
}

/// Colours are used only on a terminal, and not with `NO_COLOR`.
pub fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
