//! `postrider doctor`: examine the database and say what to do. Changes nothing.
//!
//! With no configuration option it asks the running server, if one answers; otherwise it connects itself.

use serde_json::Value;

use super::{ClientOptions, ConfigOptions, Output, client::Client, output::Tone};
use crate::{
    database::Database,
    exit::{Exit, Failure},
    http::diagnose,
    logging,
};

/// Severities, the least severe first.
const SEVERITIES: [&str; 4] = ["ok", "info", "warning", "critical"];

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also list what is ok.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    config: ConfigOptions,
    #[command(flatten)]
    client: ClientOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let asked = if args.config.is_given() {
        None
    } else {
        let progress = output.spinner("asking the server");
        let asked = Client::new(&args.client)?.get_if_running(&["doctor"]).await;
        progress.finish_and_clear();
        match asked {
            // The server requires a token; with access to the database none is needed.
            Err(error) if error.status.is_some_and(|status| status.is_client_error()) => None,
            asked => asked?,
        }
    };
    let diagnosis = match asked {
        Some(diagnosis) => diagnosis,
        None => examine(&args.config, output).await?,
    };
    output.answer(&diagnosis, || text(&diagnosis, args.all, output))?;
    match count(&diagnosis, "critical") {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Failed, "1 finding is critical")),
        n => Err(Failure::new(
            Exit::Failed,
            format!("{n} findings are critical"),
        )),
    }
}

async fn examine(options: &ConfigOptions, output: &Output) -> Result<Value, Failure> {
    let config = options.load(&[])?.config;
    logging::start(&config.log);
    let progress = output.spinner("opening the database");
    let database = Database::attach(&config).await?;
    progress.set_message("examining");
    let diagnosis = diagnose(database.pool(), database.wallet(), &config).await;
    progress.finish_and_clear();
    // If the embedded server was started for this, stop it properly whatever was found.
    database.close().await;
    serde_json::to_value(diagnosis)
        .map_err(|e| Failure::caused(Exit::Failed, "the findings can't be written as JSON", &e))
}

fn findings(diagnosis: &Value) -> impl Iterator<Item = &Value> {
    diagnosis["findings"].as_array().into_iter().flatten()
}

fn count(diagnosis: &Value, severity: &str) -> usize {
    findings(diagnosis)
        .filter(|finding| finding["severity"] == severity)
        .count()
}

fn text(diagnosis: &Value, all: bool, output: &Output) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rank = |severity: &str| SEVERITIES.iter().position(|known| *known == severity);
    let mut shown: Vec<&Value> = findings(diagnosis)
        .filter(|finding| all || finding["severity"] != "ok")
        .collect();
    shown.sort_by_key(|finding| std::cmp::Reverse(rank(&word(&finding["severity"]))));
    let mut lines: Vec<String> = Vec::new();
    for finding in shown {
        let severity = word(&finding["severity"]);
        let tone = match severity.as_str() {
            "ok" => Tone::Good,
            "info" => Tone::Dim,
            _ => Tone::Bad,
        };
        lines.push(format!(
            "{} {} {}",
            output.paint(tone, &severity),
            word(&finding["check"]),
            word(&finding["subject"])
        ));
        lines.push(format!("  {}", word(&finding["what"])));
        let items = finding["items"].as_array().into_iter().flatten();
        lines.extend(items.map(|item| format!("    {}", word(item))));
        if let Some(advice) = finding["advice"].as_str() {
            lines.push(format!("  → {advice}"));
        }
    }
    let [ok, info, warning, critical] = SEVERITIES.map(|severity| count(diagnosis, severity));
    lines.push(format!(
        "{} checks: {critical} critical, {warning} warning, {info} info, {ok} ok",
        ok + info + warning + critical
    ));
    lines.join("\n")
}
