//! `postrider demo`: runs [`postrider_sim::demo`] on a private PostgreSQL and shows how it goes.

mod progress;
mod table;

use std::{path::PathBuf, time::Duration};

use postrider_sim::demo::{self, Demo, Directory, ErrorKind, Report, Setup};
use tokio_util::sync::CancellationToken;

use super::{ConfigOptions, Output, serve};
use crate::{
    database::Database,
    exit::{Exit, Failure},
    logging, services,
};
use progress::ProgressView;

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the private PostgreSQL, files and logs; by default a temporary one, removed at the end.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Duration of the load in seconds; the whole demo takes about twenty seconds longer.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(5..=3600))]
    seconds: u32,
    /// Address and port of API and console [default: 127.0.0.1:8080, or any free port if that is taken].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Keep API and console running at the end, until interrupted.
    #[arg(long)]
    keep: bool,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    serve::stop_on_signal(stop.clone())?;
    let directory = Directory::open(args.data_dir.clone())?;
    let result = run_in(&directory, &args, output, &stop).await;
    if let Err(error) = directory.close().await {
        output.say(&error.to_string());
    }
    result
}

/// Opens the database, and closes it however the demo ends.
async fn run_in(
    directory: &Directory,
    args: &Args,
    output: &Output,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let data_dir = directory.path().display().to_string();
    let config = ConfigOptions::default()
        .load(&[
            ("demo", "data_dir", Some(data_dir.as_str())),
            ("demo", "database.url", Some("")),
            ("demo", "log.level", Some("off")),
        ])?
        .config;
    logging::start(&config.log);
    let view = ProgressView::new(*output);
    let spinner = output.spinner("starting PostgreSQL");
    let database = Database::open(&config).await;
    spinner.finish_and_clear();
    let database = database?;
    let result = run_on(&database, directory, args, &view, stop).await;
    database.close().await;
    result
}

/// Runs the demo, and shuts its processes down however it ends.
async fn run_on(
    database: &Database,
    directory: &Directory,
    args: &Args,
    view: &ProgressView,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let interrupted = || Failure::new(Exit::Failed, "interrupted before the end");
    let start = async {
        demo::prepare(database.pool(), directory.path()).await?;
        database.migrate().await?;
        let embedded = "the demo needs the embedded PostgreSQL";
        let setup = Setup {
            program: std::env::current_exe()
                .map_err(|e| Failure::caused(Exit::Failed, "can't find the program", &e))?,
            data_dir: directory.path(),
            server: database
                .embedded()
                .ok_or_else(|| Failure::new(Exit::Failed, embedded))?,
            pool: database.pool().clone(),
            work_tables: services::work_tables().collect(),
            duration: Duration::from_secs(args.seconds.into()),
            listen: args.listen.clone(),
        };
        Ok::<_, Failure>(Demo::start(setup, view).await?)
    };
    // A demo that is dropped half-way takes its processes with it.
    let mut demo = tokio::select! {
        demo = start => demo?,
        () = stop.cancelled() => return Err(interrupted()),
    };
    let report = tokio::select! {
        report = demo.run() => report.map_err(Failure::from),
        () = stop.cancelled() => Err(interrupted()),
    };
    view.clear();
    let result = match report {
        Ok(report) => {
            let result = conclude(&report, view.output());
            if args.keep {
                view.event("serving", &format!("until interrupted: {}", demo.url()));
                stop.cancelled().await;
            }
            result
        }
        Err(failure) => Err(failure),
    };
    demo.stop().await;
    result
}

/// Prints the report; a violation is an error.
fn conclude(report: &Report, output: &Output) -> Result<(), Failure> {
    output.answer(report, || table::text(report, output))?;
    if report.is_success() {
        return Ok(());
    }
    let violations = report.violations.join("; ");
    Err(Failure::new(
        Exit::Failed,
        format!("a promise was broken: {violations}"),
    ))
}

impl From<demo::Error> for Failure {
    fn from(error: demo::Error) -> Self {
        let exit = match error.kind {
            ErrorKind::Failed => Exit::Failed,
            ErrorKind::Usage => Exit::Usage,
            ErrorKind::Database => Exit::Database,
        };
        Self::new(exit, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use postrider_sim::demo::{Effect, Evidence, service_of};

    use super::*;

    #[test]
    fn violation_is_an_error_that_names_the_item() {
        let effect = Effect {
            item: "k-1".to_owned(),
            correct: true,
        };
        let mut evidence = Evidence {
            service: "orders",
            accepted: ["k-1".to_owned()].into(),
            effects: vec![effect.clone()],
            ..Evidence::default()
        };
        let output = Output::new(true);
        assert!(conclude(&Report::new(std::slice::from_ref(&evidence)), &output).is_ok());
        evidence.effects.push(effect);
        let failure = conclude(&Report::new(&[evidence]), &output).expect_err("done twice");
        assert_eq!(failure.exit, Exit::Failed);
        assert!(
            failure.message.contains("orders: 1 done twice: k-1"),
            "{failure}"
        );
    }

    #[test]
    fn demo_attributes_every_table_of_a_service_to_it() {
        let own = services::work_tables().filter(|table| !table.name.starts_with("postrider."));
        for table in own {
            assert_ne!(service_of(table.name, ""), "others", "{}", table.name);
        }
    }
}
