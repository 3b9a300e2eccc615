//! `postrider timeline`: the history of an id or key, across services.

use reqwest::Method;
use serde_json::Value;

use super::{ClientOptions, Output, client::Client, output::Tone};
use crate::exit::Failure;

/// Options of `timeline`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Any id or key: of an order, a payment, a job, an artifact, a protocol, a message, a W3C trace, or table/number.
    id: String,
    #[command(flatten)]
    client: ClientOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    let (_, timeline) = client
        .call(Method::GET, &["traces", &args.id], &[], None)
        .await?;
    output.answer(&timeline, || text(&timeline, output))
}

fn text(timeline: &Value, output: &Output) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for subject in timeline["subjects"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{} {} ({}): {}",
            word(&subject["kind"]),
            word(&subject["key"]),
            word(&subject["service"]),
            word(&subject["state"])
        ));
    }
    for event in timeline["events"].as_array().into_iter().flatten() {
        let tone = match event["good"].as_bool() {
            Some(true) => Some(Tone::Good),
            Some(false) => Some(Tone::Bad),
            None => None,
        };
        let what = word(&event["what"]);
        let what = tone.map_or_else(|| what.clone(), |tone| output.paint(tone, &what));
        let about = format!("{} {}", word(&event["subject"]), word(&event["detail"]));
        lines.push(format!(
            "{}  {what}  {}",
            word(&event["at"]),
            output.paint(Tone::Dim, about.trim_end())
        ));
    }
    lines.join("\n")
}
