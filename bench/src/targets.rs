//! The performance targets, as ratios within one run, and whether this run reached them.

use serde::Serialize;

use crate::peer::{OURS, RUST_PEERS};
use crate::results::{LIMIT, Results};

/// A target and the result of this run.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The target.
    pub target: String,
    /// The bound on the ratio.
    pub asked: f64,
    /// Is the bound a maximum?
    pub at_most: bool,
    /// The ratio of this run; none if something for it was not measured.
    pub got: Option<f64>,
    /// Reached, missed, or none if not measured.
    pub reached: Option<bool>,
}

/// A target.
struct Target {
    description: &'static str,
    asked: f64,
    at_most: bool,
    measure: &'static str,
    against: Against,
}

/// What Postrider is compared with.
enum Against {
    /// A peer on the same measure.
    Peer(&'static str),
    /// The fastest of all Rust peers on the same measure.
    FastestRust,
    /// The fastest of all peers on the same measure.
    Fastest,
    /// The limit on another measure.
    Limit(&'static str),
    /// Postrider on another measure.
    Ours(&'static str),
    /// Nothing: the figure itself has the bound.
    Itself,
}

const fn at_least(
    description: &'static str,
    asked: f64,
    measure: &'static str,
    against: Against,
) -> Target {
    Target {
        description,
        asked,
        at_most: false,
        measure,
        against,
    }
}

const fn at_most(
    description: &'static str,
    asked: f64,
    measure: &'static str,
    against: Against,
) -> Target {
    Target {
        description,
        asked,
        at_most: true,
        measure,
        against,
    }
}

const TARGETS: [Target; 30] = [
    at_least(
        "exports, 100,000 inputs: 20,000 a second",
        20_000.0,
        "exports/accept",
        Against::Itself,
    ),
    at_least(
        "exports, small files: a bare loop",
        0.6,
        "exports/small",
        Against::Limit("exports/small"),
    ),
    at_least(
        "exports, reused: the library's drain",
        0.5,
        "exports/reused",
        Against::Ours("exports/drain"),
    ),
    at_least(
        "exports, one large file: psql's copy",
        0.8,
        "exports/large",
        Against::Limit("exports/large"),
    ),
    at_most(
        "exports, one large file: additional MB of memory",
        64.0,
        "exports/large-memory",
        Against::Itself,
    ),
    at_least(
        "drain, tiny: pgmq",
        1.5,
        "drain/tiny/1",
        Against::Peer("pgmq"),
    ),
    at_least(
        "drain, tiny: graphile-worker",
        3.0,
        "drain/tiny/1",
        Against::Peer("graphile-worker"),
    ),
    at_least(
        "drain, tiny: fastest Rust peer",
        2.0,
        "drain/tiny/1",
        Against::FastestRust,
    ),
    at_least(
        "drain, 1 KB: pgmq",
        1.2,
        "drain/1KB/1",
        Against::Peer("pgmq"),
    ),
    at_least(
        "drain, 8 KB: pgmq",
        1.2,
        "drain/8KB/1",
        Against::Peer("pgmq"),
    ),
    at_least(
        "first-time settings: fastest peer",
        5.0,
        "defaults/tiny/1",
        Against::Fastest,
    ),
    at_least(
        "single enqueue, 8 clients: pgbench",
        0.95,
        "enqueue/single/8",
        Against::Limit("enqueue/single/8"),
    ),
    at_least(
        "single enqueue, 64 clients: pgbench",
        0.95,
        "enqueue/single/64",
        Against::Limit("enqueue/single/64"),
    ),
    at_least(
        "grouped commits, 64 callers: pgbench",
        2.0,
        "enqueue/grouped/64",
        Against::Limit("enqueue/single/64"),
    ),
    at_least(
        "bulk enqueue: pgmq",
        1.0,
        "enqueue/bulk",
        Against::Peer("pgmq"),
    ),
    at_least(
        "four processes, no error: one process",
        0.0,
        "drain/tiny/4",
        Against::Ours("drain/tiny/1"),
    ),
    at_least(
        "1 M ready: empty table",
        0.8,
        "depth/ready",
        Against::Ours("depth/empty"),
    ),
    at_least(
        "1 M in the future: empty table",
        0.8,
        "depth/future",
        Against::Ours("depth/empty"),
    ),
    at_least(
        "open transaction: none open",
        0.5,
        "snapshot/open",
        Against::Ours("snapshot/closed"),
    ),
    at_most(
        "WAL, bulk and drain: pgmq",
        0.75,
        "wal/bulk+drain",
        Against::Peer("pgmq"),
    ),
    at_most(
        "pick-up p50: graphile-worker",
        1.0,
        "pickup/p50",
        Against::Peer("graphile-worker"),
    ),
    at_most(
        "pick-up p95: graphile-worker",
        1.0,
        "pickup/p95",
        Against::Peer("graphile-worker"),
    ),
    at_most(
        "memory, second half of 1 M: first half",
        1.2,
        "sustained/growth",
        Against::Itself,
    ),
    at_most(
        "memory of a worker, MB",
        256.0,
        "sustained/memory",
        Against::Itself,
    ),
    at_least(
        "orders accepted over HTTP, 64 clients: pgbench",
        1.0,
        "orders/accept/64",
        Against::Limit("orders/accept/64"),
    ),
    at_least(
        "orders replayed over HTTP, 64 clients: pgbench",
        2.0,
        "orders/replay/64",
        Against::Limit("orders/accept/64"),
    ),
    at_least(
        "payments, end to end: bare loop",
        0.6,
        "payments",
        Against::Limit("payments"),
    ),
    at_least(
        "evidence attached, 1 MB: bare loop",
        0.6,
        "evidence/1MB",
        Against::Limit("evidence/1MB"),
    ),
    at_most(
        "evidence, 1 GB archive: additional MB of memory",
        128.0,
        "evidence/archive-memory",
        Against::Itself,
    ),
    at_least(
        "outbox to Kafka, 1 KB: bare producer",
        0.7,
        "kafka/1KB",
        Against::Limit("kafka/1KB"),
    ),
];

/// Evaluates all targets.
pub fn evaluate(results: &Results) -> Vec<Verdict> {
    TARGETS
        .iter()
        .map(|target| verdict(results, target))
        .collect()
}

fn verdict(results: &Results, target: &Target) -> Verdict {
    let ours = (target.measure, OURS);
    let fastest = |names: &mut dyn Iterator<Item = &str>| {
        let rate = |name: &&str| results.get(target.measure, name).unwrap_or(f64::MIN);
        let name = names.max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
        results.ratio(ours, (target.measure, name))
    };
    let got = match target.against {
        Against::Peer(peer) => results.ratio(ours, (target.measure, peer)),
        Against::FastestRust => fastest(&mut RUST_PEERS.into_iter()),
        Against::Fastest => {
            let mut others = results
                .peers
                .keys()
                .map(String::as_str)
                .filter(|name| *name != OURS);
            fastest(&mut others)
        }
        Against::Limit(measure) => results.ratio(ours, (measure, LIMIT)),
        Against::Ours(measure) => results.ratio(ours, (measure, OURS)),
        Against::Itself => results.get(target.measure, OURS),
    };
    Verdict {
        target: target.description.to_owned(),
        asked: target.asked,
        at_most: target.at_most,
        got,
        reached: got.map(|got| {
            if target.at_most {
                got <= target.asked
            } else {
                got >= target.asked
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::plan::{Arguments, Plan};

    fn empty() -> Results {
        Results::new(&Plan::from(&Arguments::parse_from(["bench"])))
    }

    fn find<'a>(verdicts: &'a [Verdict], target: &str) -> &'a Verdict {
        verdicts
            .iter()
            .find(|verdict| verdict.target == target)
            .unwrap_or(&verdicts[0])
    }

    #[test]
    fn unmeasured_target_is_neither_reached_nor_missed() {
        assert!(
            evaluate(&empty())
                .iter()
                .all(|verdict| verdict.reached.is_none())
        );
    }

    #[test]
    fn ratio_decides_and_a_failed_round_removes_the_figure() {
        let mut results = empty();
        results.record("drain/tiny/1", "items/s", OURS, "", 160.0);
        results.record("drain/tiny/1", "items/s", "pgmq", "", 100.0);
        assert_eq!(
            find(&evaluate(&results), "drain, tiny: pgmq").reached,
            Some(true)
        );
        results.record("drain/tiny/1", "items/s", "river-rust", "", 90.0);
        assert_eq!(
            find(&evaluate(&results), "drain, tiny: fastest Rust peer").reached,
            Some(false)
        );
        results.fail("drain/tiny/1", OURS, "lost an item");
        assert_eq!(find(&evaluate(&results), "drain, tiny: pgmq").reached, None);
    }
}
