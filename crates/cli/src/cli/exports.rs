//! `postrider exports …`: submit a job, watch it, fetch its files.

mod download;
mod watch;

use std::{io::Read, path::PathBuf};

use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    ClientOptions, Output,
    client::Client,
    listing::{Paging, lines},
    output::Tone,
};
use crate::exit::{Exit, Failure};

/// Options of `exports`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    client: ClientOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Submit a job.
    Submit(Submit),
    /// List jobs, the newest first.
    List(List),
    /// Show a job and a page of its inputs.
    // So many as there were before there were pages.
    #[command(mut_arg("limit", |limit| limit.default_value("500")))]
    Show {
        /// The job's id.
        job: String,
        /// Only inputs that stand so, e.g. DLQ.
        #[arg(long, value_enum, ignore_case = true)]
        status: Option<InputStatus>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Cancel a job: what is running finishes, nothing else is begun.
    Cancel {
        /// The job's id.
        job: String,
    },
    /// Let the failed inputs of a failed job begin anew.
    Redrive {
        /// The job's id.
        job: String,
        /// Wait until the job is over; 1 when it failed.
        #[arg(long)]
        wait: bool,
    },
    /// Fetch the files of a job.
    Download(download::Download),
}

#[derive(Debug, clap::Args)]
struct Submit {
    /// The inputs as JSON, from a file or from standard input (-): {"inputs": […]} or the list alone.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The same key is the same job, however often it is submitted.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until the job is over; 1 when it failed.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those that stand so.
    #[arg(long, value_enum, ignore_case = true)]
    status: Option<JobStatus>,
    /// Only those accepted then or later (RFC 3339).
    #[arg(long)]
    since: Option<String>,
    /// Only those accepted before (RFC 3339).
    #[arg(long)]
    until: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "UPPER")]
enum JobStatus {
    Submitted,
    Running,
    Completed,
    Failed,
    Cancelled,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
enum InputStatus {
    Pending,
    Running,
    Succeeded,
    RetryWait,
    Dlq,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    match args.verb {
        Verb::Submit(submit) => run_submit(&client, submit, output).await,
        Verb::List(list) => run_list(&client, list, output).await,
        Verb::Show {
            job,
            status,
            paging,
        } => show(&client, &job, status, &paging, output).await,
        Verb::Cancel { job } => operate(&client, &job, "cancel", false, output).await,
        Verb::Redrive { job, wait } => operate(&client, &job, "redrive", wait, output).await,
        Verb::Download(download) => download::run(&client, &download, output).await,
    }
}

async fn run_submit(client: &Client, submit: Submit, output: &Output) -> Result<(), Failure> {
    let body = request(&submit.file)?;
    let headers: Vec<(&str, &str)> = submit
        .idempotency_key
        .iter()
        .map(|key| ("Idempotency-Key", key.as_str()))
        .collect();
    let accepted = client.send_json(&["jobs"], &headers, body).await?;
    if !submit.wait {
        return output.answer(&accepted, || {
            format!("{} {}", word(&accepted["status"]), word(&accepted["jobId"]))
        });
    }
    watch::until_over(client, &word(&accepted["jobId"]), output).await
}

/// The text as it is, so that the server sees what is wrong with it; a bare list is put into its frame.
fn request(file: &PathBuf) -> Result<String, Failure> {
    let unreadable = |e: std::io::Error| {
        Failure::caused(
            Exit::Usage,
            &format!("{} can't be read", file.display()),
            &e,
        )
    };
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(unreadable)?;
    } else {
        text = std::fs::read_to_string(file).map_err(unreadable)?;
    }
    Ok(if text.trim_start().starts_with('[') {
        format!("{{\"inputs\":{text}}}")
    } else {
        text
    })
}

async fn run_list(client: &Client, list: List, output: &Output) -> Result<(), Failure> {
    let status = list.status.and_then(|status| status.to_possible_value());
    let filters = [
        ("status", status.as_ref().map(|value| value.get_name())),
        ("since", list.since.as_deref()),
        ("until", list.until.as_deref()),
    ];
    list.paging
        .list(
            client,
            ("export jobs", &["jobs"]),
            &filters,
            output,
            |job| {
                let (status, id) = (painted(&job["status"], output), word(&job["jobId"]));
                format!(
                    "{status} {id} {:>7} {}",
                    job["total"].to_string(),
                    word(&job["requestedAt"])
                )
            },
        )
        .await
}

async fn show(
    client: &Client,
    job: &str,
    status: Option<InputStatus>,
    paging: &Paging,
    output: &Output,
) -> Result<(), Failure> {
    let (_, view) = client.call(Method::GET, &["jobs", job], &[], None).await?;
    let status = status.and_then(|status| status.to_possible_value());
    let filters = [("status", status.as_ref().map(|value| value.get_name()))];
    let path = ["jobs", job, "inputs"];
    let page = paging.ask(client, &path, &filters).await?;
    let answer =
        json!({ "job": view, "inputs": page["items"], "next_cursor": page["next_cursor"] });
    output.answer(&answer, || {
        let mut text = vec![summary(&view, output)];
        text.extend(lines(&page, |input| line(input, output)));
        text.join("\n")
    })
}

async fn operate(
    client: &Client,
    job: &str,
    verb: &str,
    wait: bool,
    output: &Output,
) -> Result<(), Failure> {
    let path = ["jobs", job, verb];
    let (_, view) = client.call(Method::POST, &path, &[], None).await?;
    if wait {
        return watch::until_over(client, job, output).await;
    }
    output.answer(&view, || summary(&view, output))
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn painted(status: &Value, output: &Output) -> String {
    let status = word(status);
    let tone = match status.as_str() {
        "COMPLETED" | "SUCCEEDED" => Tone::Good,
        "FAILED" | "DLQ" => Tone::Bad,
        _ => Tone::Dim,
    };
    output.paint(tone, &format!("{status:<10}"))
}

/// A job in a line or two.
fn summary(view: &Value, output: &Output) -> String {
    let status = painted(&view["status"], output);
    let mut text = format!(
        "{status} {}: {} of {} done ({} generated, {} reused), {} pending, {} running, {} failed",
        word(&view["jobId"]),
        view["done"],
        view["total"],
        view["filesGenerated"],
        view["filesReused"],
        view["pending"],
        view["running"],
        view["failed"],
    );
    if let Some(error) = view["errorMessage"].as_str() {
        text.push_str(&format!("\n  {error}"));
    }
    text
}

fn line(input: &Value, output: &Output) -> String {
    let told = match (input["s3Path"].as_str(), input["errorCode"].as_str()) {
        (Some(path), _) => path.to_owned(),
        (None, Some(code)) => format!("{code}: {}", word(&input["errorMessage"])),
        (None, None) => String::new(),
    };
    format!(
        "{} {} {} {} {told}",
        painted(&input["status"], output),
        word(&input["indexKey"]),
        input["effectiveDate"],
        word(&input["asofindicator"]),
    )
}
