//! `postrider exports …`: submit jobs, follow them, download their files.

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
    wait::WaitOptions,
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
    /// List jobs, newest first.
    List(List),
    /// Show a job and a page of its inputs.
    #[command(mut_arg("limit", |limit| limit.default_value("500")))]
    Show {
        /// The job's id.
        job: String,
        /// Filter inputs by status, e.g. DLQ.
        #[arg(long, value_enum, ignore_case = true)]
        status: Option<InputStatus>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Cancel a job: running inputs finish, no other input starts.
    Cancel {
        /// The job's id.
        job: String,
    },
    /// Start the failed inputs of a failed job again.
    Redrive {
        /// The job's id.
        job: String,
        #[command(flatten)]
        wait: WaitOptions,
    },
    /// Download the files of a job.
    Download(download::Download),
}

#[derive(Debug, clap::Args)]
struct Submit {
    /// The inputs as JSON, from a file or from standard input (-): {"inputs": […]} or the list alone.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Idempotency key: the same key is the same job, however often it is submitted.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    wait: WaitOptions,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Filter by status.
    #[arg(long, value_enum, ignore_case = true)]
    status: Option<JobStatus>,
    /// Accepted at or after this time (RFC 3339).
    #[arg(long)]
    since: Option<String>,
    /// Accepted before this time (RFC 3339).
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
        Verb::Cancel { job } => operate(&client, &job, "cancel", None, output).await,
        Verb::Redrive { job, wait } => operate(&client, &job, "redrive", Some(&wait), output).await,
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
    if !submit.wait.wait {
        return output.answer(&accepted, || {
            format!("{} {}", word(&accepted["status"]), word(&accepted["jobId"]))
        });
    }
    watch::until_over(client, &word(&accepted["jobId"]), &submit.wait, output).await
}

/// The text as it is, so that the server reports what is wrong with it; a bare list is wrapped.
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
    let page = paging.fetch(client, &path, &filters).await?;
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
    wait: Option<&WaitOptions>,
    output: &Output,
) -> Result<(), Failure> {
    let path = ["jobs", job, verb];
    let (_, view) = client.call(Method::POST, &path, &[], None).await?;
    if let Some(wait) = wait.filter(|wait| wait.wait) {
        return watch::until_over(client, job, wait, output).await;
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

/// A job in one or two lines.
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
    let result = match (input["s3Path"].as_str(), input["errorCode"].as_str()) {
        (Some(path), _) => path.to_owned(),
        (None, Some(code)) => format!("{code}: {}", word(&input["errorMessage"])),
        (None, None) => String::new(),
    };
    format!(
        "{} {} {} {} {result}",
        painted(&input["status"], output),
        word(&input["indexKey"]),
        input["effectiveDate"],
        word(&input["asofindicator"]),
    )
}
