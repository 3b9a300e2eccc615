//! `postrider status`: how a running server is.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

use super::{ClientOptions, Output, board, client::Client, output::Tone};
use crate::exit::{Exit, Failure, chain};

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    client: ClientOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let server = args.client.server.trim_end_matches('/');
    let unreachable = |e: reqwest::Error| {
        let why = chain(&e.without_url());
        Failure::new(
            Exit::Unreachable,
            format!(
                "no Postrider answers at {server} ({why}); start one with `postrider serve` or name another with --server"
            ),
        )
    };
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(10))
        .build()
        .map_err(unreachable)?;
    let mut request = client.get(format!("{server}/readyz"));
    if let Some(token) = &args.client.token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.map_err(unreachable)?;
    let ready = response.status().is_success();
    let mut answer: Value = response.json().await.map_err(unreachable)?;
    // Whether it is ready needs no token; the rest does, and is left out for those who have none.
    let overview = Client::new(&args.client)?
        .call(Method::GET, &["overview"], &[], None)
        .await;
    if let (Ok((_, overview)), Some(answer)) = (overview, answer.as_object_mut()) {
        answer.insert("overview".to_owned(), overview);
    }
    output.answer(&answer, || text(&answer, output))?;
    if ready {
        Ok(())
    } else {
        Err(Failure::new(Exit::Failed, "the server is not ready"))
    }
}

fn text(answer: &Value, output: &Output) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let mut lines = vec![format!("status    {}", word(&answer["status"]))];
    if let Some(checks) = answer["checks"].as_object() {
        for (name, check) in checks {
            let tone = if check["ok"] == true {
                Tone::Good
            } else {
                Tone::Bad
            };
            lines.push(format!(
                "{name:<9} {}",
                output.paint(tone, &word(&check["detail"]))
            ));
        }
    }
    if let Ok(overview) = serde_json::from_value(answer["overview"].clone()) {
        lines.push(String::new());
        lines.push(board::text(&overview, output));
    }
    lines.join("\n")
}
