//! The settings of a private server: durable first, then modest.
//!
//! They are given on the command line at each start, so that a cluster made by an older version
//! of the program gets what this version thinks right.

use std::path::Path;

/// Settings that do not depend on the machine.
const FIXED: &[(&str, &str)] = &[
    // Reachable through the socket only, and the socket through its 0700 directory only. That is
    // the authentication: `peer` would compare names, and under root the program (root) and the
    // server (postgres) have different ones on purpose.
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    ("port", "5432"),
    ("ssl", "off"),
    // What commits is on disk.
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("wal_compression", "on"),
    ("max_wal_size", "1GB"),
    ("restart_after_crash", "on"),
    ("max_connections", "100"),
    // A forgotten transaction would hold vacuum back for as long as it is open.
    ("idle_in_transaction_session_timeout", "10min"),
    // Short statements over indexes: planning for a spinning disk or compiling to machine code
    // costs more than it gives.
    ("jit", "off"),
    ("random_page_cost", "1.1"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("lc_messages", "C"),
    ("cluster_name", "postrider"),
    // To stderr, which is a file that the keeper trims.
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_line_prefix", "%m [%p] "),
    ("log_checkpoints", "off"),
];

const MIB: u64 = 1024 * 1024;

/// All settings in the order in which they apply: later ones win.
pub(crate) fn all(socket_dir: &Path, extra: &[(String, String)]) -> Vec<(String, String)> {
    let memory = memory();
    let mut settings: Vec<(String, String)> = FIXED
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    settings.push((
        "shared_buffers".to_owned(),
        format!("{}MB", shared_buffers(memory)),
    ));
    settings.push((
        "effective_cache_size".to_owned(),
        format!("{}MB", (memory / 2 / MIB).max(128)),
    ));
    settings.extend_from_slice(extra);
    // Last: where the socket is, is not for anybody to override.
    settings.push(("unix_socket_directories".to_owned(), quoted(socket_dir)));
    settings
}

/// A server that only tests use is made without waiting for the disk.
pub(crate) fn is_throwaway(extra: &[(String, String)]) -> bool {
    extra
        .iter()
        .any(|(name, value)| name == "fsync" && value == "off")
}

/// A sixteenth of the machine, since the machine is shared with the program and others.
fn shared_buffers(memory: u64) -> u64 {
    (memory / 16 / MIB).clamp(32, 256)
}

/// The machine's memory; a modest guess where it cannot be read.
fn memory() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(2048 * MIB, |kib| kib * 1024)
}

/// The setting is a list; quotes keep commas and spaces of a path inside one element.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.to_string_lossy().replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_modestly() {
        assert_eq!(shared_buffers(256 * MIB), 32);
        assert_eq!(shared_buffers(2048 * MIB), 128);
        assert_eq!(shared_buffers(64 * 1024 * MIB), 256);
    }

    #[test]
    fn the_callers_settings_win_but_not_over_the_socket() {
        let extra = [
            ("max_connections".to_owned(), "7".to_owned()),
            ("unix_socket_directories".to_owned(), "/tmp".to_owned()),
        ];
        let settings = all(Path::new("/a, b"), &extra);
        let last = |wanted: &str| {
            let found = settings.iter().rev().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        assert_eq!(last("max_connections").as_deref(), Some("7"));
        assert_eq!(
            last("unix_socket_directories").as_deref(),
            Some("\"/a, b\"")
        );
    }
}
