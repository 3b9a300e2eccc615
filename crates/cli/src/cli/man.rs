//! `postrider man`: the manual page, or one page per command into a directory.

use std::path::PathBuf;

use clap::CommandFactory;

use super::{Cli, Output};
use crate::exit::{Exit, Failure};

/// Options of `man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write one page per command into this directory instead.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args, output: &Output) -> Result<(), Failure> {
    let failed =
        |e: std::io::Error| Failure::caused(Exit::Failed, "the manual page can't be written", &e);
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(failed)?;
        return clap_mangen::generate_to(Cli::command(), dir).map_err(failed);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .map_err(failed)?;
    output.bytes(&page)
}
