//! `postrider evidence …`: hand evidence in, and see what became of it.

use std::{path::PathBuf, time::Duration};

use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    ClientOptions, Output, client::Client, listing::Paging, output::Tone, waiting::Accepted,
};
use crate::exit::{Exit, Failure};

/// How often a job that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(300);

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
    /// Hand in a ZIP archive with manifest.csv, or a JSON file that names stored objects.
    Submit(Submit),
    /// Show a job: counts, notifications, rows, artifacts.
    Show {
        /// The job.
        id: String,
        /// Where the rows go on: `next_cursor` of the answer before.
        #[arg(long, allow_hyphen_values = true)]
        cursor: Option<String>,
    },
    /// List jobs, the newest first.
    List(List),
    /// Run the retry scheduler for a job now.
    Retry {
        /// The job.
        id: String,
        /// Also what is not due yet.
        #[arg(long)]
        early: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Submit {
    /// The archive (.zip) or the request (.json).
    file: PathBuf,
    /// Whose evidence it is; a JSON file says so itself.
    #[arg(long)]
    merchant: Option<String>,
    /// Wait until the job is finished; 1 when not everything was attached.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those of this merchant.
    #[arg(long)]
    merchant: Option<String>,
    /// Only those that stand so.
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
                    "{} artifacts of {} rows are tried again; {} wait",
                    retried["scheduled_artifacts"], retried["scheduled_rows"], retried["waiting"]
                );
                if let Some(next) = retried["next_retry_at"].as_str() {
                    line.push_str(&format!(", the first until {next}"));
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
            let message = "say whose evidence it is: --merchant ID";
            return Err(Failure::new(Exit::Usage, message));
        };
        let file = tokio::fs::File::open(&submit.file)
            .await
            .map_err(|e| unreadable(&submit, &e))?;
        let progress = output.spinner("sending the archive");
        let query = [("merchant_id", merchant.as_str())];
        let sent = client.upload(&path, &query, "application/zip", file).await;
        progress.finish_and_clear();
        sent?.1
    };
    if !submit.wait {
        return output.answer(&accepted, || {
            format!(
                "job {}: {} artifacts in {} rows",
                accepted["file_job_id"].as_str().unwrap_or("-"),
                accepted["artifacts"],
                accepted["rows"]
            )
        });
    }
    let id = accepted["file_job_id"].as_str().unwrap_or_default();
    let total = accepted["artifacts"].as_u64().unwrap_or_default();
    let bar = output.bar("attaching", total);
    let waited = until_over(client, id, &bar).await;
    bar.finish_and_clear();
    let view = waited?;
    output.answer(&view, || text(&view, output))?;
    if view["attached"] != view["total"] {
        return Err(Failure::new(
            Exit::Failed,
            "not all evidence could be attached",
        ));
    }
    Ok(())
}

/// The job when it is finished.
async fn until_over(
    client: &Client,
    id: &str,
    bar: &indicatif::ProgressBar,
) -> Result<Value, Failure> {
    let show = format!("postrider evidence show {id}");
    let accepted = Accepted::new(format!("job {id}"), show);
    loop {
        let view = accepted.look(client, &["file-jobs", id]).await?;
        bar.set_position(view["attached"].as_u64().unwrap_or_default());
        if view["status"] == "COMPLETED" {
            return Ok(view);
        }
        tokio::time::sleep(LOOK).await;
    }
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
            let mut told = format!(
                "    {} {} attempts {}",
                output.paint(tone, &format!("{status:<8}")),
                word(artifact, "file_name"),
                artifact["attempt_count"]
            );
            if let Some(code) = artifact["attachment_error_code"].as_str() {
                told.push_str(&format!(" {code} {}", word(artifact, "retry_status")));
            }
            if let Some(next) = artifact["next_retry_at"].as_str() {
                told.push_str(&format!(", next at {next}"));
            }
            lines.push(told);
        }
    }
    if let Some(cursor) = view["next_cursor"].as_str() {
        lines.push(format!("more: --cursor {cursor}"));
    }
    lines.join("\n")
}
