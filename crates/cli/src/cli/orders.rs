//! `postrider orders …`: send orders and follow them.

use std::{io::Read, path::PathBuf};

use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{
    ClientOptions, Output,
    client::Client,
    listing::Paging,
    output::Tone,
    wait::{WaitOptions, Waiter},
};
use crate::exit::{Exit, Failure};

/// Options of `orders`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    client: ClientOptions,
}

/// Fields of an order whose flag has another name.
const FLAGS: &[(&str, &str)] = &[("idempotency_key", "--key"), ("tags", "--tag")];

#[derive(Debug, Subcommand)]
enum Verb {
    /// Send an order, once per key.
    Send(Box<Send>),
    /// Show an order.
    Show {
        /// The idempotency key.
        key: String,
    },
    /// List orders, newest first.
    List(List),
    /// Cancel an order that has not been sent.
    Cancel {
        /// The idempotency key.
        key: String,
    },
    /// Send an aborted order again.
    Redrive {
        /// The idempotency key.
        key: String,
        /// Confirm that the order may be stale: the market may have moved.
        #[arg(long)]
        allow_stale: bool,
        /// Reason, for the audit log.
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
    /// Account.
    #[arg(long, required_unless_present = "file")]
    account: Option<String>,
    /// Symbol to trade.
    #[arg(long, required_unless_present = "file")]
    symbol: Option<String>,
    /// Side.
    #[arg(long, required_unless_present = "file", value_parser = ["buy", "sell"])]
    side: Option<String>,
    /// Quantity.
    #[arg(long, required_unless_present = "file", allow_negative_numbers = true)]
    quantity: Option<String>,
    /// Limit price; without one it is a market order.
    #[arg(long, allow_negative_numbers = true)]
    limit_price: Option<String>,
    /// How long the order stays active at the broker.
    #[arg(long, value_parser = ["day", "gtc", "ioc", "fok"])]
    time_in_force: Option<String>,
    /// Never send it after this time (RFC 3339).
    #[arg(long)]
    expires_at: Option<String>,
    /// Tag to find it by; repeatable.
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    tags: Vec<String>,
    #[command(flatten)]
    wait: WaitOptions,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Filter by status.
    #[arg(long, value_enum)]
    status: Option<Status>,
    /// Filter by account.
    #[arg(long)]
    account: Option<String>,
    /// Filter by symbol.
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
    let (wait, from_flags) = (send.wait.clone(), send.file.is_none());
    let request = request(send)?;
    let sent = client
        .call(Method::POST, &["do", "order"], &[], Some(&request))
        .await;
    let (_, mut view) = match sent {
        Err(error) if from_flags => Err(error.naming_flags(FLAGS)),
        sent => sent,
    }?;
    if wait.wait {
        let key = view["idempotency_key"].as_str().unwrap_or_default();
        let show = format!("postrider orders show {key}");
        view = Waiter::new(&wait, output, format!("order {key}"), show)
            .until(
                client,
                &["do", "order", key],
                |view| {
                    view["outbox"]["status"]
                        .as_str()
                        .unwrap_or("accepted")
                        .to_owned()
                },
                |view| view["status"] != "accepted",
            )
            .await?;
    }
    output.answer(&view, || text(&view, output))?;
    if wait.wait && view["status"] == "failed" {
        return Err(Failure::new(Exit::Failed, "the order was not sent"));
    }
    Ok(())
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
    if let Some(message) = view["outbox"]["last_error_msg"].as_str() {
        lines.push(format!(
            "  attempts {}: {message}",
            view["outbox"]["attempts"]
        ));
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
