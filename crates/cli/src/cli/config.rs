//! `postrider config`: the configuration in force.

use super::{ConfigOptions, Output};
use crate::{config, exit::Failure};

/// Options of `config`: the same as `serve`, so that its effective configuration can be seen.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    #[command(flatten)]
    config: ConfigOptions,
}

pub(super) fn run(args: &Args, output: &Output) -> Result<(), Failure> {
    let effective = args
        .config
        .load(&[("--listen", "server.listen", args.listen.as_deref())])?;
    output.answer(&config::as_json(&effective), || config::as_toml(&effective))
}
