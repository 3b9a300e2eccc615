//! `postrider demo`: all five services at work on a private PostgreSQL, with failures on purpose. Ends by itself.
//!
//! The services run as this program's own processes: one for API and console, two workers. Requests come in over HTTP,
//! outside parties fail now and then, one worker is killed, the database server is killed too; what can't be done ends
//! dead, is shown, and is redriven once its cause is gone. At the end an independent checker compares what was accepted
//! with what the outside world has seen.

mod acts;
mod board;
mod cast;
mod checker;
mod door;
mod holding;
mod parties;
mod place;
mod scenes;
mod settings;
mod table;

use std::{path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{ConfigOptions, Output, serve};
use crate::{
    database::Database,
    exit::{Exit, Failure},
    logging,
};
use board::Board;
use checker::Report;
use place::Place;
use scenes::Theatre;

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the private PostgreSQL, files and logs; without it a temporary one, removed at the end.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// For how many seconds requests come in; the whole takes about twenty more.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(5..=3600))]
    seconds: u32,
    /// Address and port of API and console [default: 127.0.0.1:8080, or any free port if that is taken].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Stay up at the end, console and all, until interrupted.
    #[arg(long)]
    keep: bool,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    serve::stop_on_signal(stop.clone())?;
    let place = Place::take(args.data_dir.clone())?;
    let result = perform(&place, &args, output, &stop).await;
    place.leave(output).await;
    result
}

/// With a database, which is closed again whatever comes of it.
async fn perform(
    place: &Place,
    args: &Args,
    output: &Output,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let dir = place.dir().display().to_string();
    let config = ConfigOptions::default()
        .load(&[
            ("demo", "data_dir", Some(dir.as_str())),
            ("demo", "database.url", Some("")),
            ("demo", "log.level", Some("off")),
        ])?
        .config;
    logging::start(&config.log);
    let board = Board::new(*output);
    let progress = output.spinner("starting PostgreSQL");
    let database = Database::open(&config).await;
    progress.finish_and_clear();
    let database = database?;
    let result = with_database(place, args, &database, &board, stop).await;
    database.close().await;
    result
}

/// With a theatre, whose processes are sent home whatever comes of it.
async fn with_database(
    place: &Place,
    args: &Args,
    database: &Database,
    board: &Board,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let span = Duration::from_secs(args.seconds.into());
    let listen = args.listen.as_deref();
    let interrupted = || Failure::new(Exit::Failed, "interrupted before the end");
    // Whatever is dropped half-way takes its processes with it.
    let mut theatre = tokio::select! {
        opened = Theatre::open(place.dir(), database, board, span, listen) => opened?,
        () = stop.cancelled() => return Err(interrupted()),
    };
    let played = tokio::select! {
        played = theatre.play() => played,
        () = stop.cancelled() => Err(interrupted()),
    };
    board.clear();
    let result = match played {
        Ok(report) => {
            let result = conclude(&report, board.output());
            if args.keep {
                board.say(
                    "staying",
                    &format!("up until interrupted: {}", theatre.address()),
                );
                stop.cancelled().await;
            }
            result
        }
        Err(failure) => Err(failure),
    };
    theatre.close().await;
    result
}

/// Tells how it went; the exit code says the same.
fn conclude(report: &Report, output: &Output) -> Result<(), Failure> {
    output.answer(report, || table::of(report, output))?;
    if report.is_right() {
        return Ok(());
    }
    let why = report.broken.join("; ");
    Err(Failure::new(
        Exit::Failed,
        format!("a promise was broken: {why}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::{
        checker::{Effect, Report, Witness},
        *,
    };

    #[test]
    fn a_broken_promise_is_no_success_and_is_named() {
        let effect = Effect {
            item: "k-1".to_owned(),
            right: true,
        };
        let mut witness = Witness {
            service: "orders",
            accepted: ["k-1".to_owned()].into(),
            effects: vec![effect.clone()],
            ..Witness::default()
        };
        let output = Output::new(true);
        assert!(conclude(&Report::of(std::slice::from_ref(&witness)), &output).is_ok());
        witness.effects.push(effect);
        let failure = conclude(&Report::of(&[witness]), &output).expect_err("done twice");
        assert_eq!(failure.exit, Exit::Failed);
        assert!(
            failure.message.contains("orders: 1 done twice: k-1"),
            "{failure}"
        );
    }
}
