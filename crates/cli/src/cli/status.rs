//! `postrider status`: how a running server is.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::{
    ClientOptions, Output, board,
    client::{Client, Miss},
    output::Tone,
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
    // Whether it is ready needs no token; the rest does, and is left out for those who have none.
    let overview = client.call(Method::GET, &["overview"], &[], None).await;
    let mut refused = None;
    match (overview, answer.as_object_mut()) {
        (Ok((_, overview)), Some(answer)) => {
            answer.insert("overview".to_owned(), overview);
        }
        // Whoever has one must hear that it does not do, or they look for the fault elsewhere.
        (Err(miss), _) if args.client.token.is_some() && is_about_the_token(&miss) => {
            refused = Some(Failure::from(miss));
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

fn is_about_the_token(miss: &Miss) -> bool {
    let about = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
    miss.status.is_some_and(|status| about.contains(&status))
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
