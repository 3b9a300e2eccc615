//! What is asked of Postrider, as ratios within one run, and whether this run reached it.

use serde::Serialize;

use crate::peer::{OURS, RUST_PEERS};
use crate::results::{LIMIT, Results};

/// One target and this run's answer.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// What is asked.
    pub target: String,
    /// The bound on the ratio.
    pub asked: f64,
    /// Whether the ratio must stay below the bound and not above.
    pub at_most: bool,
    /// The ratio of this run; none if something for it was not measured.
    pub got: Option<f64>,
    /// Reached, missed, or none if not measured.
    pub reached: Option<bool>,
}

/// Ours against whom, and where.
struct Target {
    words: &'static str,
    asked: f64,
    at_most: bool,
    measure: &'static str,
    against: Against,
}

/// The other side of a ratio.
enum Against {
    /// A peer on the same measure.
    Peer(&'static str),
    /// The fastest of all Rust peers on the same measure.
    FastestRust,
    /// The fastest of all peers on the same measure.
    Fastest,
    /// The limit on another measure.
    Limit(&'static str),
    /// Ourselves on another measure.
    Ours(&'static str),
    /// One: the figure is a ratio already.
    Itself,
}

const fn least(words: &'static str, asked: f64, measure: &'static str, against: Against) -> Target {
    Target {
        words,
        asked,
        at_most: false,
        measure,
        against,
    }
}

const fn most(words: &'static str, asked: f64, measure: &'static str, against: Against) -> Target {
    Target {
        words,
        asked,
        at_most: true,
        measure,
        against,
    }
}

const TARGETS: [Target; 30] = [
    least(
        "exports, 100,000 inputs: 20,000 a second",
        20_000.0,
        "exports/accept",
        Against::Itself,
    ),
    least(
        "exports, small files: a bare loop",
        0.6,
        "exports/small",
        Against::Limit("exports/small"),
    ),
    least(
        "exports, reused: the engine's drain",
        0.5,
        "exports/reused",
        Against::Ours("exports/drain"),
    ),
    least(
        "exports, one large file: psql's copy",
        0.8,
        "exports/large",
        Against::Limit("exports/large"),
    ),
    most(
        "exports, one large file: MB of memory more",
        64.0,
        "exports/large-memory",
        Against::Itself,
    ),
    least(
        "drain, tiny: pgmq",
        1.5,
        "drain/tiny/1",
        Against::Peer("pgmq"),
    ),
    least(
        "drain, tiny: graphile-worker",
        3.0,
        "drain/tiny/1",
        Against::Peer("graphile-worker"),
    ),
    least(
        "drain, tiny: fastest Rust peer",
        2.0,
        "drain/tiny/1",
        Against::FastestRust,
    ),
    least(
        "drain, 1 KB: pgmq",
        1.2,
        "drain/1KB/1",
        Against::Peer("pgmq"),
    ),
    least(
        "drain, 8 KB: pgmq",
        1.2,
        "drain/8KB/1",
        Against::Peer("pgmq"),
    ),
    least(
        "first-time settings: fastest peer",
        5.0,
        "defaults/tiny/1",
        Against::Fastest,
    ),
    least(
        "single enqueue, 8 clients: pgbench",
        0.95,
        "enqueue/single/8",
        Against::Limit("enqueue/single/8"),
    ),
    least(
        "single enqueue, 64 clients: pgbench",
        0.95,
        "enqueue/single/64",
        Against::Limit("enqueue/single/64"),
    ),
    least(
        "grouped commits, 64 callers: pgbench",
        2.0,
        "enqueue/grouped/64",
        Against::Limit("enqueue/single/64"),
    ),
    least(
        "bulk enqueue: pgmq",
        1.0,
        "enqueue/bulk",
        Against::Peer("pgmq"),
    ),
    least(
        "four processes, no error: one process",
        0.0,
        "drain/tiny/4",
        Against::Ours("drain/tiny/1"),
    ),
    least(
        "1 M ready: empty table",
        0.8,
        "depth/ready",
        Against::Ours("depth/empty"),
    ),
    least(
        "1 M in the future: empty table",
        0.8,
        "depth/future",
        Against::Ours("depth/empty"),
    ),
    least(
        "open transaction: none open",
        0.5,
        "snapshot/open",
        Against::Ours("snapshot/closed"),
    ),
    most(
        "WAL, bulk and drain: pgmq",
        0.75,
        "wal/bulk+drain",
        Against::Peer("pgmq"),
    ),
    most(
        "pick-up p50: graphile-worker",
        1.0,
        "pickup/p50",
        Against::Peer("graphile-worker"),
    ),
    most(
        "pick-up p95: graphile-worker",
        1.0,
        "pickup/p95",
        Against::Peer("graphile-worker"),
    ),
    most(
        "memory, second half of 1 M: first half",
        1.2,
        "sustained/growth",
        Against::Itself,
    ),
    most(
        "memory of a worker, MB",
        256.0,
        "sustained/memory",
        Against::Itself,
    ),
    least(
        "orders accepted over HTTP, 64 clients: pgbench",
        1.0,
        "orders/accept/64",
        Against::Limit("orders/accept/64"),
    ),
    least(
        "orders replayed over HTTP, 64 clients: pgbench",
        2.0,
        "orders/replay/64",
        Against::Limit("orders/accept/64"),
    ),
    least(
        "payments, end to end: bare loop",
        0.6,
        "payments",
        Against::Limit("payments"),
    ),
    least(
        "evidence attached, 1 MB: bare loop",
        0.6,
        "evidence/1MB",
        Against::Limit("evidence/1MB"),
    ),
    most(
        "evidence, 1 GB archive: MB of memory more",
        128.0,
        "evidence/archive-memory",
        Against::Itself,
    ),
    least(
        "outbox to Kafka, 1 KB: bare producer",
        0.7,
        "kafka/1KB",
        Against::Limit("kafka/1KB"),
    ),
];

/// Judges all targets by this run.
pub fn judge(results: &Results) -> Vec<Verdict> {
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
        target: target.words.to_owned(),
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

    fn of<'a>(verdicts: &'a [Verdict], target: &str) -> &'a Verdict {
        verdicts
            .iter()
            .find(|verdict| verdict.target == target)
            .unwrap_or(&verdicts[0])
    }

    #[test]
    fn what_was_not_measured_is_neither_reached_nor_missed() {
        assert!(
            judge(&empty())
                .iter()
                .all(|verdict| verdict.reached.is_none())
        );
    }

    #[test]
    fn a_ratio_decides_and_a_failed_round_takes_the_figure_away() {
        let mut results = empty();
        results.note("drain/tiny/1", "items/s", OURS, "", 160.0);
        results.note("drain/tiny/1", "items/s", "pgmq", "", 100.0);
        assert_eq!(
            of(&judge(&results), "drain, tiny: pgmq").reached,
            Some(true)
        );
        results.note("drain/tiny/1", "items/s", "river-rust", "", 90.0);
        assert_eq!(
            of(&judge(&results), "drain, tiny: fastest Rust peer").reached,
            Some(false)
        );
        results.fail("drain/tiny/1", OURS, "lost an item");
        assert_eq!(of(&judge(&results), "drain, tiny: pgmq").reached, None);
    }
}
