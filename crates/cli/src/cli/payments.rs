//! `postrider payments …`: pay, see what became of it, and settle what is stuck.

use std::time::{Duration, Instant};

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    ClientOptions, Output,
    client::{Client, Miss},
    listing::Paging,
    output::Tone,
    waiting::Accepted,
};
use crate::exit::{Exit, Failure};

/// How often a payment that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A payment that is pending for the same reason for so long, and is not under way, is not waited for any longer: in the
/// mode `chance` nobody goes on with it. Not at once, since in the mode `assured` a call back that failed is repeated.
const STUCK: Duration = Duration::from_secs(10);

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
    /// List payments, the newest first.
    List(List),
    /// Settle what is stuck, from the wallet's facts.
    Reconcile,
}

#[derive(Debug, clap::Args)]
struct Pay {
    /// The account to deduct from.
    #[arg(long)]
    account: String,
    /// How much, such as 12.50.
    #[arg(long, allow_negative_numbers = true)]
    amount: String,
    /// The currency's three letters.
    #[arg(long)]
    currency: String,
    /// The same uuid is the same payment. Left out, one is made.
    #[arg(long)]
    uuid: Option<String>,
    /// Whatever helps to recognise it.
    #[arg(long)]
    description: Option<String>,
    /// Wait until it has ended; 1 when it failed, or is stuck: pending for 10 seconds for a reason other than IN_FLIGHT.
    ///
    /// A server that is away is asked again for 30 seconds. The token needs the scopes submit and read.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those that stand so.
    #[arg(long, value_parser = ["pending", "succeed", "failed"], ignore_case = true)]
    status: Option<String>,
    /// Only those of this account.
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
    // Made here and not by the server: if its answer is lost, the payment has a name under which it can be repeated.
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
        .map_err(|miss| unanswered(&uuid, miss))?;
    if !pay.wait {
        return output.answer(&receipt, || line(&receipt, output));
    }
    let progress = output.spinner("waiting for the wallet");
    let waited = until_over(client, &uuid).await;
    progress.finish_and_clear();
    let view = waited?;
    output.answer(&view, || line(&view, output))?;
    match view["status"].as_str() {
        Some("PENDING") => Err(Failure::new(
            Exit::Failed,
            format!(
                "payment {uuid} is stuck ({}); when it is older than payments.reconcile.after, `postrider payments reconcile` settles it",
                view["reason"].as_str().unwrap_or_default()
            ),
        )),
        Some("FAILED") => Err(Failure::new(Exit::Failed, "the payment failed")),
        _ => Ok(()),
    }
}

/// No receipt: without its uuid nobody could tell whether it was paid, or repeat it without paying twice.
fn unanswered(uuid: &str, miss: Miss) -> Failure {
    if !miss.is_uncertain() {
        return miss.into();
    }
    let failure = Failure::from(miss);
    let message = format!(
        "whether payment {uuid} was accepted is not known: {failure}; ask with `postrider payments show {uuid}`, or repeat it with --uuid {uuid}: that pays once"
    );
    failure.saying(message)
}

/// How the payment stands when it has ended, or when nobody seems to go on with it.
async fn until_over(client: &Client, uuid: &str) -> Result<Value, Failure> {
    let accepted = Accepted::new(
        format!("payment {uuid}"),
        format!("postrider payments show {uuid}"),
    );
    let mut stuck: Option<(Value, Instant)> = None;
    loop {
        let view = accepted.look(client, &["payments", uuid]).await?;
        if view["status"] != "PENDING" {
            return Ok(view);
        }
        stuck = match stuck {
            _ if view["reason"] == "IN_FLIGHT" => None,
            Some((reason, since)) if reason == view["reason"] => {
                if since.elapsed() >= STUCK {
                    return Ok(view);
                }
                Some((reason, since))
            }
            _ => Some((view["reason"].clone(), Instant::now())),
        };
        tokio::time::sleep(LOOK).await;
    }
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

/// Goes on while there is more, and adds everything up.
async fn run_reconcile(client: &Client, output: &Output) -> Result<(), Failure> {
    let progress = output.spinner("asking the wallet");
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
        lines.push(format!("looked at {looked_at}, settled {settled}"));
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
