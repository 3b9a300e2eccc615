//! Thresholds of the checks.

use std::time::Duration;

/// Thresholds of the checks. The defaults fit most installations.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Timeout of one check.
    pub timeout: Duration,
    /// Maximum rows of a work table that a check reads, from each end.
    pub window: u32,
    /// Maximum items listed per finding.
    pub sample: usize,
    /// Due items that haven't started for this long are overdue.
    pub overdue: Duration,
    /// Due items whose kind no worker has handled for this long are unhandled.
    pub unhandled: Duration,
    /// A lease that expired this long ago should have been rescued.
    pub rescue: Duration,
    /// Items parked for longer than this are reported.
    pub parked: Duration,
    /// A request accepted this long ago should have a result.
    pub ledger_open: Duration,
    /// Configured retention of the inbox.
    pub inbox_retention: Duration,
    /// A transaction open for longer holds vacuum back.
    pub transaction: Duration,
    /// A leader whose lease expired this long ago should have a successor.
    pub leader: Duration,
    /// A condition that may be transient is checked again after this long.
    pub recheck_after: Duration,
    /// Fewer dead rows than this are not reported.
    pub dead_rows: u32,
    /// Tables smaller than this many bytes are not reported as bloated.
    pub bloat: u64,
    /// Maximum bytes of WAL that a replication slot may retain.
    pub slot_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        const HOUR: Duration = Duration::from_secs(60 * 60);
        Self {
            timeout: Duration::from_secs(5),
            window: 20_000,
            sample: 10,
            overdue: HOUR,
            unhandled: MINUTE,
            rescue: 2 * MINUTE,
            parked: 24 * HOUR,
            ledger_open: 24 * HOUR,
            inbox_retention: postrider::inbox::RETENTION,
            transaction: 5 * MINUTE,
            leader: MINUTE,
            recheck_after: Duration::from_secs(2),
            dead_rows: 10_000,
            bloat: 256 * 1024 * 1024,
            slot_bytes: 1024 * 1024 * 1024,
        }
    }
}
