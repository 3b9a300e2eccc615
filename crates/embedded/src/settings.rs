//! Settings of a private server: durable, and modest in memory.
//!
//! They are passed on the command line at each start, so that a cluster of an older version of the
//! program gets the settings of this version.

use std::path::Path;

/// Settings that do not depend on the machine.
const FIXED: &[(&str, &str)] = &[
    // Reachable only through the socket, and the socket only through its 0700 directory. That is the
    // authentication: `peer` would compare names, and under root those of program and server differ.
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    ("port", "5432"),
    ("ssl", "off"),
    // Commits are durable.
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("wal_compression", "on"),
    ("max_wal_size", "1GB"),
    ("restart_after_crash", "on"),
    ("max_connections", "100"),
    // An idle open transaction would hold vacuum back.
    ("idle_in_transaction_session_timeout", "10min"),
    // Statements are short and use indexes: JIT and cost estimates for spinning disks don't pay off.
    ("jit", "off"),
    ("random_page_cost", "1.1"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("lc_messages", "C"),
    ("cluster_name", "postrider"),
    // To stderr, a file that the supervisor rotates.
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
    // Last: the socket directory can't be overridden.
    settings.push(("unix_socket_directories".to_owned(), quoted(socket_dir)));
    settings
}

/// A server for tests only is created without syncing.
pub(crate) fn is_throwaway(extra: &[(String, String)]) -> bool {
    extra
        .iter()
        .any(|(name, value)| name == "fsync" && value == "off")
}

/// A sixteenth of the machine's memory: the program and others share it.
fn shared_buffers(memory: u64) -> u64 {
    (memory / 16 / MIB).clamp(32, 256)
}

/// The machine's memory; 2 GiB if unknown.
fn memory() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(2048 * MIB, |kib| kib * 1024)
}

/// The setting is a list; quotes keep commas and spaces of a path in one element.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.to_string_lossy().replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_buffers_are_bounded() {
        assert_eq!(shared_buffers(256 * MIB), 32);
        assert_eq!(shared_buffers(2048 * MIB), 128);
        assert_eq!(shared_buffers(64 * 1024 * MIB), 256);
    }

    #[test]
    fn extra_settings_override_all_but_the_socket() {
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
