//! `postrider dead …`: list, redrive and archive dead letters.

use clap::Subcommand;
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
    /// List dead letters of all services, newest first.
    List {
        /// Filter, e.g. 'service:orders code:TIMEOUT since:2h "connection refused"'.
        #[arg(long, default_value = "")]
        filter: String,
        /// Group by cause, most frequent first.
        #[arg(long)]
        groups: bool,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its payload and history.
    Show {
        /// Its work table, e.g. orders.outbox_orders.
        table: String,
        /// Its id in that table.
        id: String,
    },
    /// Redrive dead letters: start them again with fresh attempts. A dry run without --yes.
    #[command(mut_arg("wait", |wait| wait.requires("yes")))]
    Redrive(OperationArgs),
    /// Archive dead letters. A dry run without --yes.
    #[command(mut_arg("wait", |wait| wait.requires("yes")))]
    Archive(OperationArgs),
    /// List redrive and archive operations, newest first.
    Operations {
        #[command(flatten)]
        paging: Paging,
    },
    /// Stop a running operation.
    Stop {
        /// Its id.
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct OperationArgs {
    /// Filter, as in `dead list`.
    #[arg(long, required_unless_present = "all")]
    filter: Option<String>,
    /// Every dead letter of every service.
    #[arg(long, conflicts_with = "filter")]
    all: bool,
    /// Do it; without this it is a dry run.
    #[arg(long)]
    yes: bool,
    /// Maximum rate, per second.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Maximum number of dead letters.
    #[arg(long, value_name = "N")]
    most: Option<i64>,
    /// Reason, for the audit log.
    #[arg(long)]
    reason: Option<String>,
    /// Redrive orders too, although they may be stale.
    #[arg(long)]
    allow_stale: bool,
    #[command(flatten)]
    wait: WaitOptions,
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
        Verb::Redrive(args) => operate(&client, "redrive", args, output).await,
        Verb::Archive(args) => operate(&client, "archive", args, output).await,
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

async fn operate(
    client: &Client,
    verb: &'static str,
    args: OperationArgs,
    output: &Output,
) -> Result<(), Failure> {
    // An empty filter matches everything; in a script it is more likely an unset variable.
    if args
        .filter
        .as_ref()
        .is_some_and(|filter| filter.trim().is_empty())
    {
        let message = "--filter is empty: write a filter, or --all for every dead letter";
        return Err(Failure::new(Exit::Usage, message));
    }
    let body = json!({
        "filter": args.filter.unwrap_or_default(),
        "all": args.all,
        "reason": args.reason,
        "rate": args.rate,
        "most": args.most,
        "allow_stale": args.allow_stale,
        "dry_run": !args.yes,
    });
    let path = ["dead-letters", verb];
    let (_, mut answer) = client
        .call(Method::POST, &path, &[], Some(&body))
        .await
        .map_err(|error| error.naming_flags(&[]))?;
    if !args.yes {
        return output.answer(&answer, || preview(verb, &answer, output));
    }
    if args.wait.wait {
        let id = answer["id"].to_string();
        let show = "postrider dead operations";
        answer = Waiter::new(&args.wait, output, format!("operation {id}"), show)
            .until(
                client,
                &["dead-letters", "operations", &id],
                |operation| format!("{} changed", operation["changed"]),
                |operation| operation["state"] != "running",
            )
            .await?;
    }
    output.answer(&answer, || operation_line(&answer, output))?;
    if answer["state"] == "stopped" {
        return Err(Failure::new(Exit::Failed, "the operation was stopped"));
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
    for entry in item["audit"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{} {} by {} ({})",
            word(&entry["at"]),
            word(&entry["action"]),
            word(&entry["actor"]),
            word(&entry["reason"])
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
    let matching = plural(
        answer["matching"].as_i64().unwrap_or_default(),
        "dead letter",
    );
    lines.push(format!(
        "dry run: would {verb} {more}{matching}; repeat with --yes to do it"
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
