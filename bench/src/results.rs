//! The results, as written to `latest.json`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cluster::Server;
use crate::peer::Peer;
use crate::plan::Plan;
use crate::targets::Verdict;

/// The name of the limit among the peers.
pub const LIMIT: &str = "limit";

/// pgbench with prepared statements; no target uses it.
pub const PREPARED: &str = "pgbench, prepared";

/// The bare loop with files in memory; no target uses it.
pub const CALLS: &str = "calls from memory";

/// All rounds of one figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// The measurement, such as `drain/tiny/1`.
    pub measure: String,
    /// The unit.
    pub unit: &'static str,
    /// The system.
    pub peer: String,
    /// Its settings.
    pub settings: String,
    /// The rounds, in order.
    pub rounds: Vec<f64>,
    /// Their median.
    pub median: f64,
}

/// A run without a figure, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// The measurement.
    pub measure: String,
    /// The system.
    pub peer: String,
    /// The error.
    pub reason: String,
}

/// The whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// When it began.
    pub begun: String,
    /// Was it the short run, with rough figures?
    pub quick: bool,
    /// The server.
    pub server: Server,
    /// Peers and their versions.
    pub peers: BTreeMap<String, String>,
    /// Unavailable peers, and why.
    pub absent: BTreeMap<String, String>,
    /// The figures, in the order of measurement.
    pub figures: Vec<Figure>,
    /// Runs without a figure.
    pub failures: Vec<Failure>,
}

impl Results {
    /// Nothing measured yet.
    pub fn new(plan: &Plan) -> Self {
        let version = |peer: &Peer| (peer.name.to_owned(), peer.version.to_owned());
        Self {
            begun: OffsetDateTime::now_utc()
                .format(&Rfc3339)
                .unwrap_or_default(),
            quick: plan.quick,
            server: Server::default(),
            peers: plan.peers.iter().map(version).collect(),
            absent: BTreeMap::new(),
            figures: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Records an unavailable peer.
    pub fn record_unavailable(&mut self, peer: &str, reason: &str) {
        self.absent.insert(peer.to_owned(), reason.to_owned());
    }

    /// Records one round of a figure.
    pub fn record(
        &mut self,
        measure: &str,
        unit: &'static str,
        peer: &str,
        settings: &str,
        value: f64,
    ) {
        let same = |figure: &&mut Figure| figure.measure == measure && figure.peer == peer;
        if let Some(figure) = self.figures.iter_mut().find(same) {
            figure.rounds.push(value);
            figure.median = median(&figure.rounds);
            return;
        }
        self.figures.push(Figure {
            measure: measure.to_owned(),
            unit,
            peer: peer.to_owned(),
            settings: settings.to_owned(),
            rounds: vec![value],
            median: value,
        });
    }

    /// Records a failed run. It invalidates the other rounds, too: a system that sometimes loses work has no figure.
    pub fn fail(&mut self, measure: &str, peer: &str, reason: &str) {
        self.failures.push(Failure {
            measure: measure.to_owned(),
            peer: peer.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// A median, unless a round of it failed.
    pub fn get(&self, measure: &str, peer: &str) -> Option<f64> {
        self.figure(measure, peer).map(|figure| figure.median)
    }

    /// The ratio of two figures, each given by measurement and system: the median of the rounds' ratios, because within a
    /// round both ran under the same conditions.
    pub fn ratio(&self, one: (&str, &str), other: (&str, &str)) -> Option<f64> {
        let (one, other) = (self.figure(one.0, one.1)?, self.figure(other.0, other.1)?);
        if one.rounds.len() != other.rounds.len() {
            return Some(one.median / other.median.max(1e-9));
        }
        let rounds = one.rounds.iter().zip(&other.rounds);
        let ratios: Vec<f64> = rounds.map(|(one, other)| one / other.max(1e-9)).collect();
        Some(median(&ratios))
    }

    fn figure(&self, measure: &str, peer: &str) -> Option<&Figure> {
        if self.failed(measure, peer).is_some() {
            return None;
        }
        self.figures
            .iter()
            .find(|figure| figure.measure == measure && figure.peer == peer)
    }

    /// Why there is no figure.
    pub fn failed(&self, measure: &str, peer: &str) -> Option<&Failure> {
        self.failures
            .iter()
            .find(|failure| failure.measure == measure && failure.peer == peer)
    }

    /// All measures in order, with their units.
    pub fn measures(&self) -> Vec<(&str, &'static str)> {
        let mut seen: Vec<(&str, &'static str)> = Vec::new();
        for figure in &self.figures {
            if !seen.iter().any(|(measure, _)| *measure == figure.measure) {
                seen.push((&figure.measure, figure.unit));
            }
        }
        seen
    }

    /// Writes `latest.json`.
    pub fn write(&self, folder: &Path, verdicts: &[Verdict]) -> Result<()> {
        #[derive(Serialize)]
        struct Document<'a> {
            #[serde(flatten)]
            results: &'a Results,
            targets: &'a [Verdict],
        }
        let document = Document {
            results: self,
            targets: verdicts,
        };
        std::fs::write(
            folder.join("latest.json"),
            serde_json::to_vec_pretty(&document)?,
        )?;
        Ok(())
    }
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// The percentile of sorted values.
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    let place = (sorted.len() * percent)
        .div_ceil(100)
        .clamp(1, sorted.len());
    sorted[place - 1]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::peer::OURS;
    use crate::plan::Arguments;

    #[test]
    fn ratio_is_computed_per_round_if_both_have_all_rounds() {
        let mut results = Results::new(&Plan::from(&Arguments::parse_from(["bench"])));
        for (ours, other) in [(50.0, 100.0), (12.0, 20.0), (35.0, 50.0)] {
            results.record("m", "items/s", OURS, "", ours);
            results.record("m", "items/s", LIMIT, "", other);
        }
        let ratio = |results: &Results| results.ratio(("m", OURS), ("m", LIMIT));
        assert!(ratio(&results).is_some_and(|got| (got - 0.6).abs() < 1e-9));
        results.record("m", "items/s", LIMIT, "", 1000.0);
        assert!(ratio(&results).is_some_and(|got| (got - 35.0 / 75.0).abs() < 1e-9));
        results.fail("m", LIMIT, "lost an item");
        assert_eq!(ratio(&results), None);
    }

    #[test]
    fn median_is_the_middle_and_percentile_is_an_actual_value() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((percentile(&sorted, 95) - 95.0).abs() < 1e-9);
        assert!((percentile(&[7.0], 99) - 7.0).abs() < 1e-9);
    }
}
