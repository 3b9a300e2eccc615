//! `postrider orders …`: send an order, and see what became of it.

use std::{io::Read, path::PathBuf, time::Duration};

use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{
    ClientOptions, Output, client::Client, listing::Paging, output::Tone, waiting::Accepted,
};
use crate::exit::{Exit, Failure};

/// How often an order that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Options of `orders`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    client: ClientOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Send an order, once per key.
    Send(Box<Send>),
    /// Show an order.
    Show {
        /// The idempotency key.
        key: String,
    },
    /// List orders, the newest first.
    List(List),
    /// Cancel an order that was not sent yet.
    Cancel {
        /// The idempotency key.
        key: String,
    },
    /// Send an aborted order anew.
    Redrive {
        /// The idempotency key.
        key: String,
        /// Yes, although the market may have moved on since.
        #[arg(long)]
        allow_stale: bool,
        /// Why, for the audit.
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct Send {
    /// The whole request as JSON, from a file or from standard input (-).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "account", "symbol", "side", "quantity"])]
    file: Option<PathBuf>,
    /// The idempotency key: the same key is the same order.
    #[arg(long, required_unless_present = "file")]
    key: Option<String>,
    /// On whose account.
    #[arg(long, required_unless_present = "file")]
    account: Option<String>,
    /// What to trade.
    #[arg(long, required_unless_present = "file")]
    symbol: Option<String>,
    /// Which way.
    #[arg(long, required_unless_present = "file", value_parser = ["buy", "sell"])]
    side: Option<String>,
    /// How much.
    #[arg(long, required_unless_present = "file", allow_negative_numbers = true)]
    quantity: Option<String>,
    /// The limit; without one it is a market order.
    #[arg(long, allow_negative_numbers = true)]
    limit_price: Option<String>,
    /// For how long the broker keeps it.
    #[arg(long, value_parser = ["day", "gtc", "ioc", "fok"])]
    time_in_force: Option<String>,
    /// After this (RFC 3339) it is never sent.
    #[arg(long)]
    expires_at: Option<String>,
    /// Something to find it by; may be repeated.
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    tags: Vec<String>,
    /// Wait until the broker has it, or never will; 1 when it failed.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those that stand so.
    #[arg(long, value_enum)]
    status: Option<Status>,
    /// Only those of this account.
    #[arg(long)]
    account: Option<String>,
    /// Only those of this symbol.
    #[arg(long)]
    symbol: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    Pending,
    Sending,
    Succeeded,
    Failed,
    Aborted,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    match args.verb {
        Verb::Send(send) => run_send(&client, *send, output).await,
        Verb::Show { key } => {
            let (_, view) = client
                .call(Method::GET, &["do", "order", &key], &[], None)
                .await?;
            output.answer(&view, || text(&view, output))
        }
        Verb::List(list) => run_list(&client, list, output).await,
        Verb::Cancel { key } => {
            let path = ["do", "order", &key, "cancel"];
            let (_, view) = client.call(Method::POST, &path, &[], None).await?;
            output.answer(&view, || text(&view, output))
        }
        Verb::Redrive {
            key,
            allow_stale,
            reason,
        } => {
            let path = ["do", "order", &key, "redrive"];
            let body = json!({ "allow_stale": allow_stale, "reason": reason });
            let (_, view) = client.call(Method::POST, &path, &[], Some(&body)).await?;
            output.answer(&view, || text(&view, output))
        }
    }
}

async fn run_send(client: &Client, send: Send, output: &Output) -> Result<(), Failure> {
    let wait = send.wait;
    let request = request(send)?;
    let path = ["do", "order"];
    let (_, mut view) = client
        .call(Method::POST, &path, &[], Some(&request))
        .await?;
    if wait {
        let progress = output.spinner("waiting for the broker");
        let waited = until_over(client, view).await;
        progress.finish_and_clear();
        view = waited?;
    }
    output.answer(&view, || text(&view, output))?;
    if wait && view["status"] == "failed" {
        return Err(Failure::new(Exit::Failed, "the order was not sent"));
    }
    Ok(())
}

/// The order when the broker has it, or never will.
async fn until_over(client: &Client, mut view: Value) -> Result<Value, Failure> {
    let key = view["idempotency_key"].as_str().unwrap_or_default();
    let (key, show) = (key.to_owned(), format!("postrider orders show {key}"));
    let accepted = Accepted::new(format!("order {key}"), show);
    while view["status"] == "accepted" {
        tokio::time::sleep(LOOK).await;
        view = accepted.look(client, &["do", "order", &key]).await?;
    }
    Ok(view)
}

fn request(send: Send) -> Result<Value, Failure> {
    if let Some(file) = &send.file {
        let unreadable = |e: &(dyn std::error::Error + 'static)| {
            Failure::caused(Exit::Usage, "the order can't be read", e)
        };
        let mut text = String::new();
        if file.as_os_str() == "-" {
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|e| unreadable(&e))?;
        } else {
            text = std::fs::read_to_string(file).map_err(|e| unreadable(&e))?;
        }
        return serde_json::from_str(&text).map_err(|e| unreadable(&e));
    }
    let mut tags = Map::new();
    for tag in &send.tags {
        let (name, value) = tag.split_once('=').ok_or_else(|| {
            Failure::new(Exit::Usage, format!("write --tag NAME=VALUE, not {tag}"))
        })?;
        tags.insert(name.to_owned(), value.into());
    }
    let mut request = json!({
        "idempotency_key": send.key,
        "account": send.account,
        "symbol": send.symbol,
        "side": send.side,
        "quantity": send.quantity,
        "type": if send.limit_price.is_some() { "limit" } else { "market" },
        "limit_price": send.limit_price,
        "expires_at": send.expires_at,
        "tags": tags,
    });
    if let Some(time_in_force) = send.time_in_force {
        request["time_in_force"] = time_in_force.into();
    }
    Ok(request)
}

async fn run_list(client: &Client, list: List, output: &Output) -> Result<(), Failure> {
    let status = list.status.and_then(|status| status.to_possible_value());
    let filters = [
        ("status", status.as_ref().map(|value| value.get_name())),
        ("account", list.account.as_deref()),
        ("symbol", list.symbol.as_deref()),
    ];
    list.paging
        .list(
            client,
            ("orders", &["do", "order"]),
            &filters,
            output,
            |view| line(view, output),
        )
        .await
}

fn line(view: &Value, output: &Output) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let status = word(&view["outbox"]["status"]);
    let tone = match status.as_str() {
        "succeeded" => Tone::Good,
        "aborted" => Tone::Bad,
        _ => Tone::Dim,
    };
    let error = word(&view["outbox"]["last_error_code"]);
    let key = word(&view["idempotency_key"]);
    format!(
        "{} {key} {error}",
        output.paint(tone, &format!("{status:<9}"))
    )
}

fn text(view: &Value, output: &Output) -> String {
    let mut lines = vec![line(view, output)];
    if let Some(said) = view["outbox"]["last_error_msg"].as_str() {
        lines.push(format!("  attempts {}: {said}", view["outbox"]["attempts"]));
    }
    if !view["result"].is_null() {
        lines.push(format!("  result {}", view["result"]));
    }
    lines.push(format!(
        "  digest {}",
        view["request_digest"].as_str().unwrap_or("-")
    ));
    lines.join("\n")
}
