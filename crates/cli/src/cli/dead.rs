//! `postrider dead …`: what was given up, and what to do with it.

use std::time::Duration;

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    ClientOptions, Output, client::Client, listing::Paging, output::Tone, waiting::Accepted,
};
use crate::exit::{Exit, Failure};

/// How often an operation that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Options of `dead`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    client: ClientOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List dead letters of all services, the newest first.
    List {
        /// Which, e.g. 'service:orders code:TIMEOUT since:2h "connection refused"'.
        #[arg(long, default_value = "")]
        filter: String,
        /// By cause instead of one by one, the most frequent first.
        #[arg(long)]
        groups: bool,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its payload and its history.
    Show {
        /// Its work table, e.g. orders.outbox_orders.
        table: String,
        /// Its number there.
        id: String,
    },
    /// Let dead letters begin anew. Says what it would do; with --yes it does it.
    Redrive(Order),
    /// Lay dead letters to rest. Says what it would do; with --yes it does it.
    Archive(Order),
    /// List redrives and archivings, the newest first.
    Operations {
        #[command(flatten)]
        paging: Paging,
    },
    /// Stop a redrive or an archiving that goes on.
    Stop {
        /// Its number.
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct Order {
    /// Which, as in the listing.
    #[arg(long, required_unless_present = "all")]
    filter: Option<String>,
    /// Every one of every service.
    #[arg(long, conflicts_with = "filter")]
    all: bool,
    /// Really do it.
    #[arg(long)]
    yes: bool,
    /// At most so many per second.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// At most so many in all.
    #[arg(long, value_name = "N")]
    most: Option<i64>,
    /// Why, for the audit.
    #[arg(long)]
    reason: Option<String>,
    /// Orders among them may be stale by now: send them nevertheless.
    #[arg(long)]
    allow_stale: bool,
    /// Wait until it has ended.
    #[arg(long, requires = "yes")]
    wait: bool,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    match args.verb {
        Verb::List {
            filter,
            groups: true,
            ..
        } => {
            let query = [("filter", filter.as_str())];
            let (_, found) = client
                .call(Method::GET, &["dead-letters", "groups"], &query, None)
                .await?;
            output.answer(&found, || groups(&found, output))
        }
        Verb::List { filter, paging, .. } => {
            let filters = [("filter", Some(filter.as_str()))];
            paging
                .list(
                    &client,
                    ("dead letters", &["dead-letters"]),
                    &filters,
                    output,
                    |letter| line(letter, output),
                )
                .await
        }
        Verb::Show { table, id } => {
            let path = ["dead-letters", &table, &id];
            let (_, item) = client.call(Method::GET, &path, &[], None).await?;
            output.answer(&item, || text(&item, output))
        }
        Verb::Redrive(order) => run_order(&client, "redrive", order, output).await,
        Verb::Archive(order) => run_order(&client, "archive", order, output).await,
        Verb::Operations { paging } => {
            paging
                .list(
                    &client,
                    ("operations", &["dead-letters", "operations"]),
                    &[],
                    output,
                    |operation| operation_line(operation, output),
                )
                .await
        }
        Verb::Stop { id } => {
            let path = ["dead-letters", "operations", &id, "stop"];
            let (_, stopped) = client.call(Method::POST, &path, &[], None).await?;
            output.answer(&stopped, || operation_line(&stopped, output))
        }
    }
}

/// The operation when it has ended.
async fn until_over(
    client: &Client,
    mut operation: Value,
    progress: &indicatif::ProgressBar,
) -> Result<Value, Failure> {
    let id = operation["id"].to_string();
    let accepted = Accepted::new(format!("operation {id}"), "postrider dead operations");
    while operation["state"] == "running" {
        tokio::time::sleep(LOOK).await;
        let path = ["dead-letters", "operations", &id];
        operation = accepted.look(client, &path).await?;
        progress.set_message(format!("{} so far", operation["changed"]));
    }
    Ok(operation)
}

async fn run_order(
    client: &Client,
    verb: &'static str,
    order: Order,
    output: &Output,
) -> Result<(), Failure> {
    // An empty filter fits everything; from a script it is more likely a variable that was not set.
    if order
        .filter
        .as_ref()
        .is_some_and(|filter| filter.trim().is_empty())
    {
        let message = "--filter is empty: say which dead letters are meant, or --all for every one";
        return Err(Failure::new(Exit::Usage, message));
    }
    let body = json!({
        "filter": order.filter.unwrap_or_default(),
        "all": order.all,
        "reason": order.reason,
        "rate": order.rate,
        "most": order.most,
        "allow_stale": order.allow_stale,
        "dry_run": !order.yes,
    });
    let path = ["dead-letters", verb];
    let (_, mut answer) = client.call(Method::POST, &path, &[], Some(&body)).await?;
    if !order.yes {
        return output.answer(&answer, || preview(verb, &answer, output));
    }
    if order.wait {
        let progress = output.spinner("going on");
        let waited = until_over(client, answer, &progress).await;
        progress.finish_and_clear();
        answer = waited?;
    }
    output.answer(&answer, || operation_line(&answer, output))?;
    if answer["state"] == "stopped" {
        return Err(Failure::new(Exit::Failed, "somebody has stopped it"));
    }
    Ok(())
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn line(letter: &Value, output: &Output) -> String {
    format!(
        "{} {}/{} {} {}",
        word(&letter["died_at"]),
        word(&letter["work_table"]),
        letter["id"],
        output.paint(Tone::Bad, word(&letter["code"])),
        word(&letter["message"])
    )
}

fn groups(found: &Value, output: &Output) -> String {
    let groups = found["items"].as_array().map_or(&[][..], Vec::as_slice);
    let lines: Vec<String> = groups
        .iter()
        .map(|group| {
            format!(
                "{:>7} {:<10} {} {}",
                group["count"].to_string(),
                word(&group["service"]),
                output.paint(Tone::Bad, word(&group["cause"])),
                output.paint(
                    Tone::Dim,
                    &format!("e.g. {}/{}", word(&group["work_table"]), group["example"])
                ),
            )
        })
        .collect();
    if lines.is_empty() {
        return "no dead letters".to_owned();
    }
    lines.join("\n")
}

fn text(item: &Value, output: &Output) -> String {
    let dead = item["dead"] == true;
    let (tone, state) = if dead {
        (Tone::Bad, "dead")
    } else {
        (Tone::Good, "not dead")
    };
    let mut lines = vec![format!(
        "{}/{} {}",
        word(&item["work_table"]),
        item["id"],
        output.paint(tone, state)
    )];
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    lines.push(format!("payload {}", pretty(&item["payload"])));
    for attempt in item["attempts"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{} attempt {} {} {} {}",
            word(&attempt["ended_at"]),
            attempt["attempt"],
            word(&attempt["outcome"]),
            word(&attempt["code"]),
            word(&attempt["message"])
        ));
    }
    for deed in item["audit"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{} {} by {} ({})",
            word(&deed["at"]),
            word(&deed["action"]),
            word(&deed["actor"]),
            word(&deed["reason"])
        ));
    }
    lines.join("\n")
}

fn preview(verb: &str, answer: &Value, output: &Output) -> String {
    let sample = answer["sample"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines: Vec<String> = sample.iter().map(|letter| line(letter, output)).collect();
    let more = if answer["more"] == true {
        "more than "
    } else {
        ""
    };
    lines.push(format!(
        "{more}{} would be changed; nothing was: repeat with --yes to {verb} them",
        answer["matching"]
    ));
    lines.join("\n")
}

fn operation_line(operation: &Value, output: &Output) -> String {
    let state = word(&operation["state"]);
    let tone = match state {
        "done" => Tone::Good,
        "stopped" => Tone::Bad,
        _ => Tone::Dim,
    };
    format!(
        "{} {} {}: {} changed, {} skipped",
        word(&operation["action"]),
        operation["id"],
        output.paint(tone, state),
        operation["changed"],
        operation["skipped"]
    )
}
