//! The measured systems, and the query that tells whether their work is done.

/// How a peer's adapter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Postrider: a binary of this package.
    Ours,
    /// A crate, in the workspace `bench/peers`.
    Rust,
    /// A Node package.
    Node,
    /// A Go module.
    Go,
}

/// A query about the work done, independent of the adapter.
#[derive(Debug, Clone, Copy)]
pub enum CompletionQuery {
    /// Counts unfinished items.
    Left(&'static str),
    /// Counts finished items.
    Done(&'static str),
}

/// A measured system.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its name, folder and database.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// How its adapter runs.
    pub kind: Kind,
    /// How to tell that its work is done.
    pub completion: CompletionQuery,
    /// Does it take part in the long scenarios?
    pub long: bool,
}

/// The name of Postrider among the peers.
pub const OURS: &str = "ours";

/// Peers that are Rust libraries with a worker.
pub const RUST_PEERS: [&str; 3] = ["awa", "river-rust", "apalis"];

const RIVER: CompletionQuery = CompletionQuery::Left(
    "select count(*) from river_job
     where state in ('available', 'pending', 'retryable', 'running', 'scheduled')",
);

/// All systems.
pub fn all() -> Vec<Peer> {
    let peer = |name, version, kind, completion, long| Peer {
        name,
        version,
        kind,
        completion,
        long,
    };
    vec![
        peer(
            OURS,
            env!("CARGO_PKG_VERSION"),
            Kind::Ours,
            CompletionQuery::Left("select count(*) from postrider.outbox where finished_at is null"),
            true,
        ),
        peer(
            "pgmq",
            "crate 0.33.7, SQL 1.11.1",
            Kind::Rust,
            CompletionQuery::Left("select count(*) from pgmq.q_bench"),
            true,
        ),
        peer(
            "graphile-worker",
            "0.18.0",
            Kind::Node,
            CompletionQuery::Left("select count(*) from graphile_worker._private_jobs"),
            true,
        ),
        peer(
            "pg-boss",
            "12.35.0",
            Kind::Node,
            CompletionQuery::Left("select count(*) from pgboss.job where state < 'completed'"),
            false,
        ),
        peer(
            "awa",
            "0.6.9",
            Kind::Rust,
            // Completions are appended in batches, or one by one.
            CompletionQuery::Done(
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
            CompletionQuery::Left("select count(*) from apalis.jobs where status <> 'Done'"),
            false,
        ),
    ]
}
