//! `postrider sim …`: outside parties that misbehave as told, to try things out against.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Subcommand;
use postrider_orders::broker::{PaperBroker, Rule, Script, simulator};

use super::{Output, serve};
use crate::exit::{Exit, Failure};

/// Options of `sim`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    party: Party,
}

#[derive(Debug, Subcommand)]
enum Party {
    /// A trading broker: POST /orders, GET /orders/{id}; GET /orders shows its book, PUT /script changes its manners.
    Broker {
        /// Address and port to listen on.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
        listen: SocketAddr,
        /// A list of rules (JSON); the first that fits an order decides.
        #[arg(long, value_name = "FILE")]
        script: Option<PathBuf>,
    },
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let Party::Broker { listen, script } = args.party;
    let rules = match script {
        Some(path) => read(&path)?,
        None => Vec::new(),
    };
    let broker = Arc::new(PaperBroker::in_memory(Script::new(rules)));
    let listener = serve::listen(listen).await?;
    let failed = |e: std::io::Error| Failure::caused(Exit::Failed, "the simulator broke down", &e);
    let address = listener.local_addr().map_err(failed)?;
    output.say(&format!("the simulated broker listens on http://{address}"));
    let stop = tokio_util::sync::CancellationToken::new();
    serve::stop_on_signal(stop.clone())?;
    axum::serve(listener, simulator(broker))
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .map_err(failed)
}

fn read(path: &PathBuf) -> Result<Vec<Rule>, Failure> {
    let wrong = |e: &(dyn std::error::Error + 'static)| {
        Failure::caused(Exit::Usage, &format!("the script {}", path.display()), e)
    };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    serde_json::from_str(&text).map_err(|e| wrong(&e))
}
