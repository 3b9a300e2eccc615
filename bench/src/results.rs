//! What was measured, as it is written to `latest.json`.

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

/// The limit's name among the peers.
pub const LIMIT: &str = "limit";

/// The name of pgbench with prepared statements, which nobody is judged by.
pub const PREPARED: &str = "pgbench, prepared";

/// The name of the bare loop that has its files in memory, which nobody is judged by.
pub const CALLS: &str = "calls from memory";

/// All rounds of one figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What was done, such as `drain/tiny/1`.
    pub measure: String,
    /// In which unit.
    pub unit: &'static str,
    /// By whom.
    pub peer: String,
    /// With which settings, in words.
    pub settings: String,
    /// The rounds, in order.
    pub rounds: Vec<f64>,
    /// Their median.
    pub median: f64,
}

/// A run that gave no figure, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// What was done.
    pub measure: String,
    /// By whom.
    pub peer: String,
    /// What went wrong.
    pub reason: String,
}

/// The whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// When it began.
    pub begun: String,
    /// Whether it was the short one, whose figures are rough.
    pub quick: bool,
    /// The server.
    pub server: Server,
    /// Peers and their versions.
    pub peers: BTreeMap<String, String>,
    /// Peers that could not be had, and why.
    pub absent: BTreeMap<String, String>,
    /// The figures, in the order in which they were first taken.
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

    /// Notes that a peer cannot be had.
    pub fn absent(&mut self, peer: &str, reason: &str) {
        self.absent.insert(peer.to_owned(), reason.to_owned());
    }

    /// Notes one round of a figure.
    pub fn note(
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

    /// Notes a run that gave no figure. Other rounds of it do not count either: what loses work
    /// sometimes is not fast.
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

    /// The first as a multiple of the second, each a measure and whose: the median of the rounds' ratios. Within a round both
    /// had the machine in the same mood.
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

/// The middle of the values; of an even number, the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// The value below which so many hundredths of the sorted values lie.
pub fn percentile(sorted: &[f64], hundredths: usize) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    let place = (sorted.len() * hundredths)
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
    fn a_ratio_is_taken_within_each_round_where_both_took_part_in_all() {
        let mut results = Results::new(&Plan::from(&Arguments::parse_from(["bench"])));
        for (ours, other) in [(50.0, 100.0), (12.0, 20.0), (35.0, 50.0)] {
            results.note("m", "items/s", OURS, "", ours);
            results.note("m", "items/s", LIMIT, "", other);
        }
        let ratio = |results: &Results| results.ratio(("m", OURS), ("m", LIMIT));
        assert!(ratio(&results).is_some_and(|got| (got - 0.6).abs() < 1e-9));
        results.note("m", "items/s", LIMIT, "", 1000.0);
        assert!(ratio(&results).is_some_and(|got| (got - 35.0 / 75.0).abs() < 1e-9));
        results.fail("m", LIMIT, "lost an item");
        assert_eq!(ratio(&results), None);
    }

    #[test]
    fn the_median_is_the_middle_and_a_percentile_a_real_value() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((percentile(&sorted, 95) - 95.0).abs() < 1e-9);
        assert!((percentile(&[7.0], 99) - 7.0).abs() < 1e-9);
    }
}
