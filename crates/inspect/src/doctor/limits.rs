//! What counts as long, many or much.

use std::time::Duration;

/// The doctor's ideas of what is long or many. The defaults suit most.
#[derive(Debug, Clone)]
pub struct Limits {
    /// A look that takes longer is given up.
    pub patience: Duration,
    /// At most so many rows of a work table are read per look, from each end.
    pub window: u32,
    /// At most so many items are named per finding.
    pub sample: usize,
    /// Due work that is not begun for this long.
    pub overdue: Duration,
    /// Due work whose kind nobody handles for this long.
    pub unhandled: Duration,
    /// A lease that ran out this long ago should have been rescued.
    pub rescue: Duration,
    /// Parked for longer than this.
    pub parked: Duration,
    /// A request that was accepted this long ago should have an outcome.
    pub ledger_open: Duration,
    /// How long the inbox remembers, as it is configured.
    pub inbox_retention: Duration,
    /// A transaction that is open for longer holds vacuum back.
    pub transaction: Duration,
    /// A leader whose lease ran out this long ago should have a successor.
    pub leader: Duration,
    /// What may be a passing moment is looked at again after this long.
    pub second_look: Duration,
    /// Fewer dead rows than this are no matter.
    pub dead_rows: u32,
    /// A table smaller than this in bytes is not bloated.
    pub bloat: u64,
    /// So many bytes of log held back by a slot are too many.
    pub slot_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        const HOUR: Duration = Duration::from_secs(60 * 60);
        Self {
            patience: Duration::from_secs(5),
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
            second_look: Duration::from_secs(2),
            dead_rows: 10_000,
            bloat: 256 * 1024 * 1024,
            slot_bytes: 1024 * 1024 * 1024,
        }
    }
}
