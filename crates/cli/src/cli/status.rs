//! `postrider status`: health and overview of a running server.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::{
    ClientOptions, Output,
    client::{Client, RequestError},
    output::Tone,
    overview,
};
use crate::exit::{Exit, Failure};

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    client: ClientOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    let (ready, mut answer) = client.ready().await?;
    // Readiness needs no token; the overview does, and is left out without one.
    let fetched = client.call(Method::GET, &["overview"], &[], None).await;
    let mut refused = None;
    match (fetched, answer.as_object_mut()) {
        (Ok((_, overview)), Some(answer)) => {
            answer.insert("overview".to_owned(), overview);
        }
        // A token that is refused must be reported, not ignored.
        (Err(error), _) if args.client.token.is_some() && is_about_the_token(&error) => {
            refused = Some(Failure::from(error));
        }
        _ => {}
    }
    output.answer(&answer, || text(&answer, output))?;
    if !ready {
        return Err(Failure::new(Exit::Failed, "the server is not ready"));
    }
    match refused {
        Some(why) => Err(Failure::new(
            why.exit,
            format!("the token was refused: {why}"),
        )),
        None => Ok(()),
    }
}

fn is_about_the_token(error: &RequestError) -> bool {
    let about = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
    error.status.is_some_and(|status| about.contains(&status))
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
    if let Ok(view) = serde_json::from_value(answer["overview"].clone()) {
        lines.push(String::new());
        lines.push(overview::text(&view, output));
    }
    lines.join("\n")
}
