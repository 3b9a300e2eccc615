//! `postrider top`: a running server at a glance, again and again.

use std::{io::IsTerminal, time::Duration};

use reqwest::Method;
use serde_json::Value;

use super::{ClientOptions, Output, board, client::Client};
use crate::exit::{Exit, Failure};

/// To the upper left corner, and what was there before is wiped away line by line: nothing flickers.
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K\n";
const REST_OF_SCREEN: &str = "\x1b[J";

/// A screen of its own, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Options of `top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Look this often, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Look once and end; so it is anyway where there is no terminal.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    client: ClientOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    let overview = look(&client).await?;
    if args.once || output.is_json() || !std::io::stdout().is_terminal() {
        return output.answer(&overview, || frame(&overview, output));
    }
    let _screen = Screen::enter(output);
    let mut said = frame(&overview, output);
    loop {
        let lines: Vec<&str> = said.lines().collect();
        let text = format!(
            "{HOME}{}{REST_OF_LINE}{REST_OF_SCREEN}",
            lines.join(REST_OF_LINE)
        );
        output.bytes(text.as_bytes())?;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(args.every)) => {}
            interrupted = tokio::signal::ctrl_c() => {
                return interrupted.map_err(|e| Failure::caused(Exit::Failed, "signals can't be watched", &e));
            }
        }
        said = match look(&client).await {
            Ok(overview) => frame(&overview, output),
            // A server that restarts is back in a moment: say so and go on looking.
            Err(failure) => format!("{failure}\n(ctrl-c ends this)"),
        };
    }
}

async fn look(client: &Client) -> Result<Value, Failure> {
    let (_, overview) = client.call(Method::GET, &["overview"], &[], None).await?;
    Ok(overview)
}

fn frame(overview: &Value, output: &Output) -> String {
    match serde_json::from_value(overview.clone()) {
        Ok(read) => format!(
            "postrider, {}\n\n{}",
            overview["at"].as_str().unwrap_or_default(),
            board::text(&read, output)
        ),
        Err(error) => {
            format!("the server's overview can't be read; is it of another version? ({error})")
        }
    }
}

/// The terminal is given back as it was, however this ends.
struct Screen<'a>(&'a Output);

impl<'a> Screen<'a> {
    fn enter(output: &'a Output) -> Self {
        let _ = output.bytes(ENTER.as_bytes());
        Self(output)
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = self.0.bytes(LEAVE.as_bytes());
    }
}
