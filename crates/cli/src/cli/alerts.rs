//! `postrider alerts`: active alerts and the rules behind them.

use reqwest::Method;
use serde_json::Value;

use super::{ClientOptions, Output, client::Client, output::Tone};
use crate::{
    alerts::{RULES, prometheus},
    exit::Failure,
};

/// Options of `alerts`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List firing and pending alerts, and those resolved within a day.
    List {
        #[command(flatten)]
        client: ClientOptions,
    },
    /// Print the rules as a Prometheus file.
    Rules,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    match args.verb {
        Verb::Rules => output.bytes(prometheus(RULES).as_bytes()),
        Verb::List { client } => {
            let client = Client::new(&client)?;
            let (_, answer) = client.call(Method::GET, &["alerts"], &[], None).await?;
            output.answer(&answer, || text(&answer, output))
        }
    }
}

fn text(answer: &Value, output: &Output) -> String {
    let alerts = answer["alerts"].as_array().map_or(&[][..], Vec::as_slice);
    if alerts.is_empty() {
        return output.paint(Tone::Good, "no alerts");
    }
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |alert: &Value| {
        let tone = match alert["state"].as_str() {
            Some("firing") => Tone::Bad,
            _ => Tone::Dim,
        };
        format!(
            "{} {:<8} {:<26} since {}  {}",
            output.paint(tone, &format!("{:<8}", word(&alert["state"]))),
            word(&alert["severity"]),
            word(&alert["name"]),
            word(&alert["since"]),
            word(&alert["summary"]),
        )
    };
    alerts.iter().map(line).collect::<Vec<_>>().join("\n")
}
