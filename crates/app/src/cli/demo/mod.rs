//! `postrider demo`: real work on a private PostgreSQL, with failures on purpose. Ends by itself.
//!
//! Letters are accepted, two worker processes deliver them, some fail at first, some can't be delivered at all; one
//! worker is killed, then the database server. What can't be delivered ends dead, is shown, and is redriven once its
//! cause is gone. At the end an independent count says how many were lost and how many were done twice.

mod count;
mod letters;
mod stage;
mod workers;

use std::path::PathBuf;

use super::Output;
use crate::exit::{Exit, Failure};

pub(super) use workers::{Args as WorkerArgs, run as run_worker};

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the private PostgreSQL; without it a temporary one, removed at the end.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// How many letters to accept.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    letters: u32,
    /// Stay up at the end until interrupted.
    #[arg(long)]
    keep: bool,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let temporary = std::env::temp_dir().join(format!("postrider-demo-{}", std::process::id()));
    let data_dir = args.data_dir.clone().unwrap_or_else(|| temporary.clone());
    let result = stage::play(&data_dir, args.letters, args.keep, output).await;
    if args.data_dir.is_none()
        && let Err(error) = std::fs::remove_dir_all(&temporary)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        output.say(&format!(
            "{} could not be removed: {error}",
            temporary.display()
        ));
    }
    let count = result?;
    output.answer(&count, || count.table(output))?;
    if count.is_right() {
        Ok(())
    } else {
        Err(Failure::new(
            Exit::Failed,
            "the count is not right: work was lost, done twice or left undone",
        ))
    }
}
