//! `postrider payments …`: pay, follow payments, and reconcile stuck ones.

use std::time::{Duration, Instant};

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    ClientOptions, Output,
    client::{Client, RequestError},
    listing::Paging,
    output::Tone,
    wait::{WaitOptions, Waiter},
};
use crate::exit::{Exit, Failure};

/// A payment that has been pending for the same reason for this long, and is not in flight, is stuck: in the mode `chance`
/// nothing will continue it. Not earlier, since in the mode `assured` a failed callback is repeated.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Fields of a payment whose flag has another name.
const FLAGS: &[(&str, &str)] = &[("account_id", "--account")];

/// Options of `payments`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    client: ClientOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Pay from an account, once per uuid.
    Pay(Pay),
    /// Show a payment.
    Show {
        /// Its uuid.
        uuid: String,
    },
    /// List payments, newest first.
    List(List),
    /// Settle stuck payments from the wallet's books.
    Reconcile,
}

#[derive(Debug, clap::Args)]
struct Pay {
    /// The account to deduct from.
    #[arg(long)]
    account: String,
    /// Amount, such as 12.50.
    #[arg(long, allow_negative_numbers = true)]
    amount: String,
    /// Currency code, such as USD.
    #[arg(long)]
    currency: String,
    /// Identifies the payment: the same UUID is the same payment. Default: a new one.
    #[arg(long)]
    uuid: Option<String>,
    /// Free text.
    #[arg(long)]
    description: Option<String>,
    #[command(flatten)]
    wait: WaitOptions,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Filter by status.
    #[arg(long, value_parser = ["pending", "succeed", "failed"], ignore_case = true)]
    status: Option<String>,
    /// Filter by account.
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    match args.verb {
        Verb::Pay(pay) => run_pay(&client, pay, output).await,
        Verb::Show { uuid } => {
            let view = show(&client, &uuid).await?;
            output.answer(&view, || line(&view, output))
        }
        Verb::List(list) => run_list(&client, list, output).await,
        Verb::Reconcile => run_reconcile(&client, output).await,
    }
}

async fn show(client: &Client, uuid: &str) -> Result<Value, Failure> {
    let path = ["payments", uuid];
    Ok(client.call(Method::GET, &path, &[], None).await?.1)
}

async fn run_pay(client: &Client, pay: Pay, output: &Output) -> Result<(), Failure> {
    // The client makes the UUID: if the response is lost, the payment can be repeated safely under the same one.
    let uuid = pay.uuid.unwrap_or_else(|| Uuid::now_v7().to_string());
    let given = [
        ("uuid", Some(uuid.clone())),
        ("account_id", Some(pay.account)),
        ("amount", Some(pay.amount)),
        ("currency", Some(pay.currency)),
        ("description", pay.description),
    ];
    let request: Map<String, Value> = given
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
        .collect();
    let request = Value::Object(request);
    let (_, receipt) = client
        .call(Method::POST, &["payments"], &[], Some(&request))
        .await
        .map_err(|error| uncertain(&uuid, error.naming_flags(FLAGS)))?;
    if !pay.wait.wait {
        return output.answer(&receipt, || line(&receipt, output));
    }
    let view = until_over(client, &uuid, &pay.wait, output).await?;
    output.answer(&view, || line(&view, output))?;
    match view["status"].as_str() {
        Some("PENDING") => Err(Failure::new(
            Exit::Failed,
            format!(
                "payment {uuid} is stuck ({}); once it is older than payments.reconcile.after, settle it with `postrider payments reconcile`",
                view["reason"].as_str().unwrap_or_default()
            ),
        )),
        Some("FAILED") => Err(Failure::new(Exit::Failed, "the payment failed")),
        _ => Ok(()),
    }
}

/// Without a receipt only the UUID tells whether it was paid, and repeats it without paying twice.
fn uncertain(uuid: &str, error: RequestError) -> Failure {
    if !error.is_uncertain() {
        return error.into();
    }
    let failure = Failure::from(error);
    let message = format!(
        "it is unknown whether payment {uuid} was accepted: {failure}; check it with `postrider payments show {uuid}`, or repeat it with --uuid {uuid}, which pays only once"
    );
    failure.with_message(message)
}

/// The payment once it has ended or is stuck.
async fn until_over(
    client: &Client,
    uuid: &str,
    wait: &WaitOptions,
    output: &Output,
) -> Result<Value, Failure> {
    let show = format!("postrider payments show {uuid}");
    let waiter = Waiter::new(wait, output, format!("payment {uuid}"), show);
    let mut pending: Option<(Value, Instant)> = None;
    let is_over = |view: &Value| {
        if view["status"] != "PENDING" {
            return true;
        }
        match &pending {
            _ if view["reason"] == "IN_FLIGHT" => pending = None,
            Some((reason, since)) if *reason == view["reason"] => {
                return since.elapsed() >= STUCK_AFTER;
            }
            _ => pending = Some((view["reason"].clone(), Instant::now())),
        }
        false
    };
    let status = |view: &Value| view["reason"].as_str().unwrap_or("pending").to_owned();
    waiter
        .until(client, &["payments", uuid], status, is_over)
        .await
}

async fn run_list(client: &Client, list: List, output: &Output) -> Result<(), Failure> {
    let status = list.status.map(|status| status.to_uppercase());
    let filters = [
        ("status", status.as_deref()),
        ("account_id", list.account.as_deref()),
    ];
    list.paging
        .list(
            client,
            ("payments", &["payments"]),
            &filters,
            output,
            |view| line(view, output),
        )
        .await
}

/// Repeats while there is more, and adds up the reports.
async fn run_reconcile(client: &Client, output: &Output) -> Result<(), Failure> {
    let progress = output.spinner("reconciling");
    let (mut looked_at, mut settled, mut requests) = (0, 0, Vec::new());
    loop {
        let path = ["payments", "reconcile"];
        let (_, mut report) = client.call(Method::POST, &path, &[], None).await?;
        looked_at += report["looked_at"].as_u64().unwrap_or_default();
        settled += report["settled"].as_u64().unwrap_or_default();
        if let Some(more) = report["requests"].as_array_mut() {
            requests.append(more);
        }
        if report["more"] != true {
            break;
        }
        progress.set_message(format!("settled {settled} of {looked_at}"));
    }
    progress.finish_and_clear();
    let answer =
        serde_json::json!({ "looked_at": looked_at, "settled": settled, "requests": requests });
    output.answer(&answer, || {
        let mut lines: Vec<String> = requests
            .iter()
            .map(|request| line(request, output))
            .collect();
        lines.push(format!("checked {looked_at}, settled {settled}"));
        lines.join("\n")
    })
}

fn line(view: &Value, output: &Output) -> String {
    let word = |name: &str| view[name].as_str().map(str::to_owned);
    let status = word("status").unwrap_or_default();
    let tone = match status.as_str() {
        "SUCCEED" => Tone::Good,
        "FAILED" => Tone::Bad,
        _ => Tone::Dim,
    };
    let painted = output.paint(tone, &format!("{status:<7}"));
    let rest = ["uuid", "account_id", "amount", "currency", "reason", "why"];
    let rest: Vec<String> = rest.into_iter().filter_map(word).collect();
    format!("{painted} {}", rest.join(" "))
}
