//! `postrider demo`: the program on a private PostgreSQL, with a crash on purpose. Ends by itself.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{ConfigOptions, Output, output::Tone, serve::Running};
use crate::{
    exit::{Exit, Failure, chain},
    logging,
    roles::Roles,
};

/// How long the demo waits for the program to be well again.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the private PostgreSQL; without it a temporary one, removed at the end.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Stay up at the end until interrupted.
    #[arg(long)]
    keep: bool,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let temporary = std::env::temp_dir().join(format!("postrider-demo-{}", std::process::id()));
    let data_dir = args.data_dir.clone().unwrap_or_else(|| temporary.clone());
    let result = play(&data_dir, args.keep, output).await;
    if args.data_dir.is_none()
        && let Err(error) = std::fs::remove_dir_all(&temporary)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        output.say(&format!(
            "{} could not be removed: {error}",
            temporary.display()
        ));
    }
    result
}

async fn play(data_dir: &std::path::Path, keep: bool, output: &Output) -> Result<(), Failure> {
    let dir = data_dir.display().to_string();
    let config = ConfigOptions::default()
        .load(&[
            ("demo", "data_dir", Some(dir.as_str())),
            ("demo", "server.listen", Some("127.0.0.1:0")),
            ("demo", "log.level", Some("off")),
        ])?
        .config;
    logging::start(&config.log);
    let mut steps = Steps {
        output,
        done: Vec::new(),
    };

    let stop = CancellationToken::new();
    let started = Instant::now();
    let progress = output.spinner("starting PostgreSQL");
    let running = Running::start(&config, Roles::default(), stop.clone()).await?;
    progress.finish_and_clear();
    steps.done("started", "PostgreSQL, schema and API are up", started);
    let outcome = visit(&running, &mut steps).await;
    if keep && outcome.is_ok() {
        output.say(&format!(
            "staying up at http://{}/reference until interrupted",
            running.address
        ));
        let _ = tokio::signal::ctrl_c().await;
    }
    let stopping = Instant::now();
    stop.cancel();
    running.until_stopped().await?;
    outcome?;
    steps.done(
        "stopped",
        "requests drained, PostgreSQL shut down in order",
        stopping,
    );

    let answer = json!({ "ok": true, "steps": steps.done });
    if output.json() {
        output.answer(&answer, String::new)?;
    }
    output.say(&output.paint(Tone::Good, "The demo ended well."));
    Ok(())
}

/// Looks at the running program as a client would, and breaks its database under it.
async fn visit(running: &Running, steps: &mut Steps<'_>) -> Result<(), Failure> {
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(5))
        .build()
        .map_err(|e| Failure::caused(Exit::Failed, "no HTTP client", &e))?;
    let base = format!("http://{}", running.address);

    let began = Instant::now();
    let ready = ask(&client, &format!("{base}/readyz")).await?;
    if ready["status"] != "ready" {
        return Err(Failure::new(
            Exit::Failed,
            format!("the server says it is not ready: {ready}"),
        ));
    }
    let document = ask(&client, &format!("{base}/openapi.json")).await?;
    let paths = document["paths"]
        .as_object()
        .map_or(0, serde_json::Map::len);
    steps.done(
        "answered",
        &format!("ready; the API describes {paths} paths"),
        began,
    );

    // Without an embedded server (a database by URL) there is nothing of ours to kill.
    if let Some(server) = running.database().embedded()
        && let Some(pid) = server.pid()
    {
        let began = Instant::now();
        let pid = i32::try_from(pid)
            .map(Pid::from_raw)
            .map_err(|e| Failure::caused(Exit::Failed, "pid", &e))?;
        kill(pid, Signal::SIGKILL).map_err(|e| {
            Failure::caused(Exit::Failed, "the database server can't be killed", &e)
        })?;
        let progress = steps
            .output
            .spinner("killed the database server, waiting for it to come back");
        until_ready(&client, &base, || server.restarts() > 0).await?;
        progress.finish_and_clear();
        steps.done(
            "recovered",
            "kill -9 of the database server: back without a hand",
            began,
        );
    }
    Ok(())
}

/// Waits until the server was brought back and the program is ready again.
///
/// "Ready" alone would prove nothing: the dead server's last process may answer once more.
async fn until_ready(
    client: &reqwest::Client,
    base: &str,
    brought_back: impl Fn() -> bool,
) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        tokio::time::sleep(LOOK).await;
        match ask(client, &format!("{base}/readyz")).await {
            Ok(answer) if brought_back() && answer["status"] == "ready" => return Ok(()),
            _ if Instant::now() < deadline => {}
            _ => {
                return Err(Failure::new(
                    Exit::Failed,
                    "the server did not become ready again",
                ));
            }
        }
    }
}

async fn ask(client: &reqwest::Client, url: &str) -> Result<Value, Failure> {
    let failed =
        |e: reqwest::Error| Failure::new(Exit::Failed, format!("GET {url}: {}", chain(&e)));
    client
        .get(url)
        .send()
        .await
        .map_err(failed)?
        .json()
        .await
        .map_err(failed)
}

/// What has been shown so far.
struct Steps<'a> {
    output: &'a Output,
    done: Vec<Value>,
}

impl Steps<'_> {
    fn done(&mut self, step: &str, what: &str, since: Instant) {
        let took = since.elapsed();
        let word = self.output.paint(Tone::Good, &format!("{step:<10}"));
        let time = self
            .output
            .paint(Tone::Dim, &format!("{:>6.2} s", took.as_secs_f64()));
        self.output.say(&format!("{word} {time}  {what}"));
        self.done
            .push(json!({ "step": step, "what": what, "seconds": took.as_secs_f64() }));
    }
}
