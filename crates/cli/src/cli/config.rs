//! `postrider config`: the effective configuration, of the running server or of this command.

use serde_json::Value;

use super::{ClientOptions, ConfigOptions, Output, client::Client};
use crate::{
    config,
    exit::{Exit, Failure},
};

/// Options of `config`: those of `serve`, to see what it would use, and a server's address, to see what it uses.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Show what `serve` would use with these options, even if a server is running.
    #[arg(long)]
    local: bool,
    #[command(flatten)]
    config: ConfigOptions,
    #[command(flatten)]
    client: ClientOptions,
}

pub(super) async fn run(args: &Args, output: &Output) -> Result<(), Failure> {
    let local = args.local || args.listen.is_some() || args.config.is_given();
    let client = Client::new(&args.client)?;
    let server = client.server();
    let mut note =
        "Options were given: this is what `postrider serve` would use with them.".to_owned();
    if !local {
        match client.get_if_running(&["config"]).await {
            Ok(Some(running)) => return show_running(&running, server.as_str(), output),
            Ok(None) => {
                note = format!(
                    "No server answers at {server}: this is what `postrider serve` would use."
                );
            }
            Err(error) => {
                let why = Failure::from(error);
                note = format!(
                    "The server at {server} doesn't show its configuration ({why}): this is what `postrider serve` would use."
                );
            }
        }
    }
    let listen = ("--listen", "server.listen", args.listen.as_deref());
    let effective = args.config.load(&[listen])?;
    output.answer(&config::as_json(&effective), || {
        format!("# {note}\n{}", config::as_toml(&effective))
    })
}

fn show_running(running: &Value, server: &str, output: &Output) -> Result<(), Failure> {
    let text = config::json_as_toml(running).ok_or_else(|| {
        let message = format!(
            "the configuration of the server at {server} can't be read; is it another version?"
        );
        Failure::new(Exit::Failed, message)
    })?;
    output.answer(running, || {
        format!("# Configuration of the server at {server}\n{text}")
    })
}
