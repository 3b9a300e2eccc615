//! Who is measured, and how the harness can tell that their work is done.

/// How a peer's adapter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Our own engine: a binary of this package.
    Ours,
    /// A crate, in the workspace of the peers.
    Rust,
    /// A package for Node.
    Node,
    /// A Go module.
    Go,
}

/// What a query says about the work, independently of the adapter.
#[derive(Debug, Clone, Copy)]
pub enum Books {
    /// Counts the items that are not finished.
    Left(&'static str),
    /// Counts the items that are finished.
    Done(&'static str),
}

/// One system under measurement.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its name, which is also its folder and its database.
    pub name: &'static str,
    /// Which version.
    pub version: &'static str,
    /// How its adapter runs.
    pub kind: Kind,
    /// How many items are left.
    pub books: Books,
    /// Whether it takes part in the long scenarios too.
    pub long: bool,
}

/// Our own name among the peers.
pub const OURS: &str = "ours";

/// The peers that are Rust libraries with a worker of their own.
pub const RUST_PEERS: [&str; 3] = ["awa", "river-rust", "apalis"];

const RIVER: Books = Books::Left(
    "select count(*) from river_job
     where state in ('available', 'pending', 'retryable', 'running', 'scheduled')",
);

/// Everybody.
pub fn all() -> Vec<Peer> {
    let peer = |name, version, kind, books, long| Peer {
        name,
        version,
        kind,
        books,
        long,
    };
    vec![
        peer(
            OURS,
            env!("CARGO_PKG_VERSION"),
            Kind::Ours,
            Books::Left("select count(*) from postrider.outbox where finished_at is null"),
            true,
        ),
        peer(
            "pgmq",
            "crate 0.33.7, SQL 1.11.1",
            Kind::Rust,
            Books::Left("select count(*) from pgmq.q_bench"),
            true,
        ),
        peer(
            "graphile-worker",
            "0.18.0",
            Kind::Node,
            Books::Left("select count(*) from graphile_worker._private_jobs"),
            true,
        ),
        peer(
            "pg-boss",
            "12.35.0",
            Kind::Node,
            Books::Left("select count(*) from pgboss.job where state < 'completed'"),
            false,
        ),
        peer(
            "awa",
            "0.6.9",
            Kind::Rust,
            // Completions are appended in batches; single ones are entries of their own.
            Books::Done(
                "select coalesce((select sum(completed_count) from awa.receipt_completion_batches), 0)::bigint
                      + (select count(*) from awa.done_entries)
                      + coalesce((select sum(pruned_completed_count) from awa.queue_terminal_rollups), 0)::bigint",
            ),
            false,
        ),
        peer("river-go", "0.50.0", Kind::Go, RIVER, false),
        peer("river-rust", "0.5.0", Kind::Rust, RIVER, false),
        peer(
            "apalis",
            "1.0.0",
            Kind::Rust,
            Books::Left("select count(*) from apalis.jobs where status <> 'Done'"),
            false,
        ),
    ]
}
