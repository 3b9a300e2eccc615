//! `postrider evidence …`: submit evidence and follow it.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use postrider_web::text::plural;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    ClientOptions, Output,
    client::Client,
    listing::Paging,
    output::Tone,
    wait::{WaitOptions, Waiter},
};
use crate::exit::{Exit, Failure};

/// Options of `evidence`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    client: ClientOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Submit a ZIP archive with manifest.csv, or a JSON file that names stored objects.
    Submit(Submit),
    /// Show a job: counts, notifications, rows, artifacts.
    Show {
        /// The job.
        id: String,
        /// Start of the page of rows: `next_cursor` of the previous page.
        #[arg(long, allow_hyphen_values = true)]
        cursor: Option<String>,
    },
    /// List jobs, newest first.
    List(List),
    /// Run the retry scheduler for a job now.
    Retry {
        /// The job.
        id: String,
        /// Include files that are not due yet.
        #[arg(long)]
        early: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Submit {
    /// The archive (.zip) or the request (.json).
    file: PathBuf,
    /// The merchant; required for an archive.
    #[arg(long)]
    merchant: Option<String>,
    #[command(flatten)]
    wait: WaitOptions,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Filter by merchant.
    #[arg(long)]
    merchant: Option<String>,
    /// Filter by status.
    #[arg(long, value_enum)]
    status: Option<Status>,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    Processing,
    Retrying,
    Completed,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    match args.verb {
        Verb::Submit(submit) => run_submit(&client, submit, output).await,
        Verb::Show { id, cursor } => {
            let query: Vec<(&str, &str)> = cursor
                .as_deref()
                .map(|cursor| ("cursor", cursor))
                .into_iter()
                .collect();
            let path = ["file-jobs", &id];
            let (_, view) = client.call(Method::GET, &path, &query, None).await?;
            output.answer(&view, || text(&view, output))
        }
        Verb::List(list) => run_list(&client, list, output).await,
        Verb::Retry { id, early } => {
            let path = ["file-jobs", &id, "retry"];
            let query: &[(&str, &str)] = if early { &[("early", "true")] } else { &[] };
            let (_, retried) = client.call(Method::POST, &path, query, None).await?;
            output.answer(&retried, || {
                let mut line = format!(
                    "{} in {} will be retried now; {} not due yet",
                    number(&retried["scheduled_artifacts"], "artifact"),
                    number(&retried["scheduled_rows"], "row"),
                    retried["waiting"]
                );
                if let Some(next) = retried["next_retry_at"].as_str() {
                    line.push_str(&format!(", the first at {next}"));
                }
                line
            })
        }
    }
}

async fn run_submit(client: &Client, submit: Submit, output: &Output) -> Result<(), Failure> {
    let is_json = submit
        .file
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    let path = ["file-jobs"];
    let accepted = if is_json {
        let text = std::fs::read_to_string(&submit.file).map_err(|e| unreadable(&submit, &e))?;
        let mut request: Value =
            serde_json::from_str(&text).map_err(|e| unreadable(&submit, &e))?;
        if let Some(merchant) = &submit.merchant {
            request["merchant_id"] = json!(merchant);
        }
        client
            .call(Method::POST, &path, &[], Some(&request))
            .await?
            .1
    } else {
        let Some(merchant) = &submit.merchant else {
            let message = "an archive needs --merchant ID";
            return Err(Failure::new(Exit::Usage, message));
        };
        let file = tokio::fs::File::open(&submit.file)
            .await
            .map_err(|e| unreadable(&submit, &e))?;
        let progress = output.spinner("uploading the archive");
        let query = [("merchant_id", merchant.as_str())];
        let sent = client.upload(&path, &query, "application/zip", file).await;
        progress.finish_and_clear();
        sent?.1
    };
    if !submit.wait.wait {
        return output.answer(&accepted, || {
            format!(
                "job {}: {} in {}",
                accepted["file_job_id"].as_str().unwrap_or("-"),
                number(&accepted["artifacts"], "artifact"),
                number(&accepted["rows"], "row")
            )
        });
    }
    let id = accepted["file_job_id"].as_str().unwrap_or_default();
    let show = format!("postrider evidence show {id}");
    let view = Waiter::new(&submit.wait, output, format!("job {id}"), show)
        .until(
            client,
            &["file-jobs", id],
            |view| format!("{} of {} attached", view["attached"], view["total"]),
            |view| view["status"] == "COMPLETED",
        )
        .await?;
    output.answer(&view, || text(&view, output))?;
    if view["attached"] != view["total"] {
        return Err(Failure::new(
            Exit::Failed,
            "not all files could be attached",
        ));
    }
    Ok(())
}

fn unreadable(submit: &Submit, error: &(dyn std::error::Error + 'static)) -> Failure {
    let what = format!("{} can't be read", submit.file.display());
    Failure::caused(Exit::Usage, &what, error)
}

async fn run_list(client: &Client, list: List, output: &Output) -> Result<(), Failure> {
    let status = list.status.map(|status| match status {
        Status::Processing => "PROCESSING",
        Status::Retrying => "RETRYING",
        Status::Completed => "COMPLETED",
    });
    let filters = [
        ("merchant_id", list.merchant.as_deref()),
        ("status", status),
    ];
    list.paging
        .list(
            client,
            ("file jobs", &["file-jobs"]),
            &filters,
            output,
            |job| line(job, output),
        )
        .await
}

fn number(value: &Value, noun: &str) -> String {
    plural(value.as_i64().unwrap_or_default(), noun)
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("-")
}

fn line(job: &Value, output: &Output) -> String {
    let status = word(job, "status");
    let tone = match (status, job["failed"].as_i64()) {
        ("COMPLETED", Some(0)) => Tone::Good,
        ("COMPLETED", _) => Tone::Bad,
        _ => Tone::Dim,
    };
    format!(
        "{} {} {}: {} attached, {} failed, {} pending of {}",
        output.paint(tone, &format!("{status:<10}")),
        word(job, "file_job_id"),
        word(job, "merchant_id"),
        job["attached"],
        job["failed"],
        job["pending"],
        job["total"]
    )
}

fn text(view: &Value, output: &Output) -> String {
    let mut lines = vec![line(view, output)];
    for (name, words) in [("n1_sent_at", "N1"), ("n2_sent_at", "N2")] {
        if let Some(at) = view[name].as_str() {
            lines.push(format!("  {words} at {at}"));
        }
    }
    for row in view["rows"].as_array().into_iter().flatten() {
        lines.push(format!(
            "  row {} case {} {} {}",
            row["row_number"],
            word(row, "case_id"),
            word(row, "reference"),
            word(row, "evidence_status")
        ));
        for artifact in row["artifacts"].as_array().into_iter().flatten() {
            let status = word(artifact, "attachment_status");
            let tone = match status {
                "ATTACHED" => Tone::Good,
                "FAILED" => Tone::Bad,
                _ => Tone::Dim,
            };
            let mut line = format!(
                "    {} {} attempts {}",
                output.paint(tone, &format!("{status:<8}")),
                word(artifact, "file_name"),
                artifact["attempt_count"]
            );
            if let Some(code) = artifact["attachment_error_code"].as_str() {
                line.push_str(&format!(" {code} {}", word(artifact, "retry_status")));
            }
            if let Some(next) = artifact["next_retry_at"].as_str() {
                line.push_str(&format!(", next at {next}"));
            }
            lines.push(line);
        }
    }
    if let Some(cursor) = view["next_cursor"].as_str() {
        lines.push(format!("more: --cursor {cursor}"));
    }
    lines.join("\n")
}
