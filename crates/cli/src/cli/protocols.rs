//! `postrider protocols …`: upload protocols, follow them, retry and review them.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
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

/// States in which a protocol waits for a person or has ended.
const OVER: [&str; 4] = ["pending_review", "complete", "dead_letter", "archived"];

/// Options of `protocols`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    client: ClientOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Upload a text or a PDF.
    Upload(Upload),
    /// Show a protocol and its criteria.
    Show {
        /// The protocol's id.
        id: String,
    },
    /// List protocols, newest first; archived ones only with --status archived.
    List(List),
    /// Start a failed protocol again.
    Retry {
        /// The protocol's id.
        id: String,
    },
    /// Approve the criteria, or reject them with a reason.
    Review(Review),
}

#[derive(Debug, clap::Args)]
struct Upload {
    /// The document: text or PDF.
    file: PathBuf,
    /// Title [default: the file's name].
    #[arg(long)]
    title: Option<String>,
    #[command(flatten)]
    wait: WaitOptions,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Filter by status.
    #[arg(long, value_enum)]
    status: Option<Status>,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Debug, clap::Args)]
struct Review {
    /// The protocol's id.
    id: String,
    /// The criteria are correct.
    #[arg(long, required_unless_present = "reject", conflicts_with = "reject")]
    approve: bool,
    /// The criteria are wrong: extract them again.
    #[arg(long, requires = "reason")]
    reject: bool,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Status {
    Uploaded,
    Extracting,
    ExtractionFailed,
    Grounding,
    GroundingFailed,
    PendingReview,
    Complete,
    DeadLetter,
    Archived,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    match args.verb {
        Verb::Upload(upload) => run_upload(&client, upload, output).await,
        Verb::Show { id } => {
            let view = show(&client, &id).await?;
            output.answer(&view, || text(&view, output))
        }
        Verb::List(list) => run_list(&client, list, output).await,
        Verb::Retry { id } => {
            let path = ["protocols", &id, "retry"];
            let (_, answer) = client.call(Method::POST, &path, &[], None).await?;
            output.answer(&answer, || format!("retry queued {id}"))
        }
        Verb::Review(review) => {
            let path = ["protocols", &review.id, "review"];
            let decision = if review.approve { "approve" } else { "reject" };
            let body = json!({ "decision": decision, "reason": review.reason });
            let (_, view) = client.call(Method::POST, &path, &[], Some(&body)).await?;
            output.answer(&view, || line(&view, output))
        }
    }
}

/// The hidden command `pdf-text`: reads one PDF in a process of its own.
pub(super) fn pdf_text() -> Result<(), Failure> {
    postrider_protocols::document::run_pdf_child()
        .map_err(|e| Failure::caused(Exit::Failed, "the PDF can't be read", &e))
}

async fn show(client: &Client, id: &str) -> Result<Value, Failure> {
    let path = ["protocols", id];
    Ok(client.call(Method::GET, &path, &[], None).await?.1)
}

async fn run_upload(client: &Client, upload: Upload, output: &Output) -> Result<(), Failure> {
    let content = std::fs::read(&upload.file)
        .map_err(|e| Failure::caused(Exit::Usage, &upload.file.display().to_string(), &e))?;
    let media = if content.starts_with(b"%PDF-") {
        "application/pdf"
    } else {
        "text/plain"
    };
    let name = upload.file.file_stem().map(|name| name.to_string_lossy());
    let title = upload
        .title
        .unwrap_or_else(|| name.unwrap_or_default().into_owned());
    let query = [("title", title.as_str())];
    let (_, mut view) = client
        .upload(&["protocols"], &query, media, content)
        .await?;
    if !upload.wait.wait {
        return output.answer(&view, || line(&view, output));
    }
    let id = view["id"].as_str().unwrap_or_default();
    let show = format!("postrider protocols show {id}");
    view = Waiter::new(&upload.wait, output, format!("protocol {id}"), show)
        .until(
            client,
            &["protocols", id],
            |view| word(&view["status"]).to_owned(),
            |view| OVER.contains(&word(&view["status"])),
        )
        .await?;
    output.answer(&view, || text(&view, output))?;
    if view["status"] == "dead_letter" {
        return Err(Failure::new(
            Exit::Failed,
            "the protocol failed and is a dead letter",
        ));
    }
    Ok(())
}

async fn run_list(client: &Client, list: List, output: &Output) -> Result<(), Failure> {
    let status = list.status.and_then(|status| status.to_possible_value());
    let filters = [("status", status.as_ref().map(|value| value.get_name()))];
    list.paging
        .list(
            client,
            ("protocols", &["protocols"]),
            &filters,
            output,
            |view| line(view, output),
        )
        .await
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn line(view: &Value, output: &Output) -> String {
    let status = word(&view["status"]);
    let tone = match status {
        "complete" | "pending_review" => Tone::Good,
        "dead_letter" | "extraction_failed" | "grounding_failed" => Tone::Bad,
        _ => Tone::Dim,
    };
    let status = output.paint(tone, &format!("{status:<17}"));
    let mut line = format!("{status} {} {}", word(&view["id"]), word(&view["title"]));
    if let Some(reason) = view["error_reason"].as_str() {
        line = format!("{line}: {reason}");
    }
    line
}

fn text(view: &Value, output: &Output) -> String {
    let mut lines = vec![line(view, output)];
    for criterion in view["criteria"].as_array().into_iter().flatten() {
        let kind = word(&criterion["kind"]);
        let number = criterion["number"].as_str().unwrap_or("•");
        lines.push(format!("  {kind} {number} {}", word(&criterion["text"])));
        for term in criterion["terms"].as_array().into_iter().flatten() {
            let (code, label) = (word(&term["code"]), word(&term["label"]));
            lines.push(output.paint(Tone::Dim, &format!("      {code} {label}")));
        }
    }
    lines.join("\n")
}
