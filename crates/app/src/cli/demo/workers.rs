//! Workers of the demo: processes of their own, so that one can be killed.

use std::{process::Stdio, time::Duration};

use postrider_engine::{
    outbox::OUTBOX,
    runtime::{Worker, WorkerOptions},
};
use sqlx::postgres::PgPoolOptions;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::letters;
use crate::exit::{Exit, Failure};

/// Short, so that the audience does not wait long for a rescue.
const LEASE: Duration = Duration::from_secs(2);

/// Options of the hidden command that is one worker.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    database_url: String,
}

/// Starts a worker process; it ends when this program ends, for then its standard input does.
pub fn start(database_url: &str) -> Result<Child, Failure> {
    let failed = |e: std::io::Error| Failure::caused(Exit::Failed, "a worker can't be started", &e);
    let program = std::env::current_exe().map_err(failed)?;
    Command::new(program)
        .args(["demo-worker", "--database-url", database_url])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)
}

/// One worker, until its standard input ends.
pub async fn run(args: Args) -> Result<(), Failure> {
    let failed = |e: &(dyn std::error::Error + 'static)| {
        Failure::caused(Exit::Failed, "the worker can't work", e)
    };
    let pool = PgPoolOptions::new()
        .max_connections(8)
        .connect_lazy(&args.database_url)
        .map_err(|e| failed(&e))?;
    let name = std::process::id().to_string();
    let options = WorkerOptions {
        name: name.clone(),
        lease: LEASE,
        batch: 100,
        prefetch: 200,
        rescue_every: Duration::from_millis(200),
        ..WorkerOptions::default()
    };
    let handler = letters::handler(pool.clone(), name).map_err(|e| failed(&e))?;
    let worker = Worker::new(pool, &OUTBOX)
        .map_err(|e| failed(&e))?
        .options(options)
        .handle(letters::TOPIC, handler);
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stopper.cancel();
    });
    worker.run(stop).await.map_err(|e| failed(&e))
}
