//! `postrider doctor`: examine the database and say what to do. Changes nothing.

use postrider_inspect::doctor::{Finding, Report, Severity};
use serde_json::json;

use super::{ConfigOptions, Output, output::Tone};
use crate::{
    config::Config,
    database::Database,
    exit::{Exit, Failure},
    logging, services,
};

/// With less of the disk free than this, it is about to be full.
const LEAST_FREE: [(f64, Severity); 2] = [(0.03, Severity::Critical), (0.10, Severity::Warning)];

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also name what is well.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    config: ConfigOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let config = args.config.load(&[])?.config;
    logging::start(&config.log);
    let progress = output.spinner("opening the database");
    let database = Database::visit(&config).await?;
    progress.set_message("examining");
    let mut report = services::doctor().examine(database.pool()).await;
    if let Some(wallet) = database.wallet() {
        let wallet = services::payments::wallet_doctor().examine(wallet).await;
        report.findings.extend(wallet.findings);
    }
    report.findings.extend(disk(&config));
    progress.finish_and_clear();
    // A server that was started for this must be stopped in order, whatever was found.
    database.close().await;
    let answer = json!({ "worst": report.worst(), "findings": report.findings });
    output.answer(&answer, || text(&report, args.all, output))?;
    match report.at_least(Severity::Critical).len() {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::Failed,
            format!("{n} findings are critical"),
        )),
    }
}

fn text(report: &Report, all: bool, output: &Output) -> String {
    let from = if all { Severity::Ok } else { Severity::Info };
    let mut lines: Vec<String> = Vec::new();
    for finding in report.at_least(from) {
        let tone = match finding.severity {
            Severity::Ok => Tone::Good,
            Severity::Info => Tone::Dim,
            Severity::Warning | Severity::Critical => Tone::Bad,
        };
        let severity = output.paint(tone, finding.severity.as_str());
        let subject = finding.subject.as_deref().unwrap_or_default();
        lines.push(format!("{severity} {} {subject}", finding.check));
        lines.push(format!("  {}", finding.what));
        lines.extend(finding.items.iter().map(|item| format!("    {item}")));
        if let Some(advice) = &finding.advice {
            lines.push(format!("  → {advice}"));
        }
    }
    let count = |severity| {
        let findings = report.findings.iter();
        findings.filter(|f| f.severity == severity).count()
    };
    lines.push(format!(
        "{} looks: {} critical, {} warnings, {} notes, {} well",
        report.findings.len(),
        count(Severity::Critical),
        count(Severity::Warning),
        count(Severity::Info),
        count(Severity::Ok)
    ));
    lines.join("\n")
}

/// How much room there is; only known of a database on this machine's own disk.
fn disk(config: &Config) -> Option<Finding> {
    if config.database.url.is_some() {
        return None;
    }
    let data_dir = config.data_dir();
    let space = nix::sys::statvfs::statvfs(&data_dir).ok()?;
    // What is kept back for root is nobody's: as `df` counts.
    let used = space.blocks().saturating_sub(space.blocks_free());
    let available = space.blocks_available();
    #[allow(clippy::cast_precision_loss, reason = "a share for people")]
    let share = available as f64 / (used + available).max(1) as f64;
    let severity = LEAST_FREE
        .iter()
        .find(|(least, _)| share < *least)
        .map_or(Severity::Ok, |(_, severity)| *severity);
    let advice = "make room or move the data directory: without space the server stops, and accepts no work until it has some";
    Some(Finding {
        check: "server/disk".to_owned(),
        subject: Some(data_dir.display().to_string()),
        severity,
        what: format!("{:.0} % of the disk is free", share * 100.0),
        advice: (severity > Severity::Ok).then(|| advice.to_owned()),
        items: Vec::new(),
    })
}
