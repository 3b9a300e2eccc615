//! Leases: claim, renew, settle, rescue.

/// The lease ran out and the item went to somebody else, or was cancelled: the late completion changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease on {table} item {id} is lost: it ran out or was taken back, so nothing was changed")]
pub struct LostLease {
    /// The work table.
    pub table: &'static str,
    /// The item.
    pub id: i64,
}
