//! `postrider wallet …`: show an account and its books, or open one.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ClientOptions, Output, client::Client};
use crate::exit::Failure;

/// Options of `wallet`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    client: ClientOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show an account.
    Show {
        /// Its id.
        account: String,
        /// Include its newest entries.
        #[arg(long)]
        entries: bool,
    },
    /// Open an account.
    Open {
        /// Its id.
        account: String,
        /// Currency code, such as USD.
        #[arg(long)]
        currency: String,
        /// Opening balance.
        #[arg(long, default_value = "0", allow_negative_numbers = true)]
        balance: String,
    },
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let client = Client::new(&args.client)?;
    match args.verb {
        Verb::Show { account, entries } => {
            let path = ["wallet", "accounts", &account];
            let (_, mut view) = client.call(Method::GET, &path, &[], None).await?;
            if entries {
                let path = ["wallet", "accounts", &account, "entries"];
                let (_, mut page) = client.call(Method::GET, &path, &[], None).await?;
                view["entries"] = page["items"].take();
            }
            output.answer(&view, || text(&view))
        }
        Verb::Open {
            account,
            currency,
            balance,
        } => {
            let body = json!({ "account_id": account, "currency": currency, "balance": balance });
            let path = ["wallet", "accounts"];
            let (_, view) = client
                .call(Method::POST, &path, &[], Some(&body))
                .await
                .map_err(|error| error.naming_flags(&[("account_id", "ACCOUNT")]))?;
            output.answer(&view, || text(&view))
        }
    }
}

fn text(view: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut lines = vec![format!(
        "{} {} {}",
        word(&view["account_id"]),
        word(&view["balance"]),
        word(&view["currency"])
    )];
    for entry in view["entries"].as_array().into_iter().flatten() {
        lines.push(format!(
            "  {} {:>14} {} {}",
            word(&entry["created_at"]),
            word(&entry["amount"]),
            word(&entry["kind"]),
            word(&entry["uuid"])
        ));
    }
    lines.join("\n")
}
