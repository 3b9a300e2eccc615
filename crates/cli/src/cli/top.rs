//! `postrider top`: a live overview of a running server.

use std::{io::IsTerminal, time::Duration};

use reqwest::Method;
use serde_json::Value;

use super::{ClientOptions, Output, client::Client, overview};
use crate::exit::{Exit, Failure};

/// Redraws from the upper left corner and clears line by line, so that nothing flickers.
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K\n";
const REST_OF_SCREEN: &str = "\x1b[J";

/// The alternate screen without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Options of `top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Refresh interval, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Print once and exit; implied when standard output is no terminal.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    client: ClientOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    let view = fetch(&client).await?;
    if args.once || output.is_json() || !std::io::stdout().is_terminal() {
        return output.answer(&view, || frame(&view, output));
    }
    let _screen = Screen::enter(output);
    let mut text = frame(&view, output);
    loop {
        let lines: Vec<&str> = text.lines().collect();
        let screen = format!(
            "{HOME}{}{REST_OF_LINE}{REST_OF_SCREEN}",
            lines.join(REST_OF_LINE)
        );
        output.bytes(screen.as_bytes())?;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(args.every)) => {}
            interrupted = tokio::signal::ctrl_c() => {
                return interrupted.map_err(|e| Failure::caused(Exit::Failed, "signals can't be watched", &e));
            }
        }
        text = match fetch(&client).await {
            Ok(view) => frame(&view, output),
            // A restarting server is back in a moment: show the error and keep polling.
            Err(failure) => format!("{failure}\n(Ctrl-C to quit)"),
        };
    }
}

async fn fetch(client: &Client) -> Result<Value, Failure> {
    let (_, view) = client.call(Method::GET, &["overview"], &[], None).await?;
    Ok(view)
}

fn frame(view: &Value, output: &Output) -> String {
    match serde_json::from_value(view.clone()) {
        Ok(read) => format!(
            "postrider, {}\n\n{}",
            view["at"].as_str().unwrap_or_default(),
            overview::text(&read, output)
        ),
        Err(error) => {
            format!("the server's overview can't be read; is it another version? ({error})")
        }
    }
}

/// Restores the terminal on drop.
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
