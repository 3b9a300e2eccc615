//! `postrider migrate`: apply pending migrations, or list them.

use serde_json::json;

use super::{ConfigOptions, Output, output::Tone};
use crate::{database::Database, exit::Failure, logging};

/// Options of `migrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List pending migrations and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    config: ConfigOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let config = args.config.load(&[])?.config;
    logging::start(&config.log);
    let progress = output.spinner("opening the database");
    let database = if args.dry_run {
        Database::attach(&config).await?
    } else {
        Database::open(&config).await?
    };
    progress.set_message("migrating");
    let plan = if args.dry_run {
        database.plan().await
    } else {
        database.migrate().await
    };
    progress.finish_and_clear();
    // Stop the embedded server properly, whatever the outcome.
    database.close().await;
    let plan = plan?;
    let names: Vec<String> = plan
        .pending
        .iter()
        .map(|p| format!("{}/{}", p.schema, p.file()))
        .collect();
    let answer =
        json!({ "dry_run": args.dry_run, "already_applied": plan.applied, "migrations": names });
    output.answer(&answer, || {
        if names.is_empty() {
            return output.paint(Tone::Good, "the database schema is up to date");
        }
        let verb = if args.dry_run {
            "would apply"
        } else {
            "applied"
        };
        names
            .iter()
            .map(|name| format!("{verb} {name}\n"))
            .collect()
    })
}
