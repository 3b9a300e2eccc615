//! `postrider sim …`: outside parties that misbehave as told, to try things out against.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::Router;
use clap::Subcommand;
use postrider_evidence::cases::{self, PaperCases};
use postrider_orders::broker::{self, PaperBroker};
use serde::de::DeserializeOwned;

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
    /// A Case API: PUT and GET /cases/{id}/evidence/{id}; GET /evidence and /calls show what it has, PUT /script changes its manners.
    Cases {
        /// Address and port to listen on.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9091")]
        listen: SocketAddr,
        /// A list of rules (JSON); the first that fits a call decides.
        #[arg(long, value_name = "FILE")]
        script: Option<PathBuf>,
    },
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let (name, listen, routes) = match args.party {
        Party::Broker { listen, script } => {
            let script = broker::Script::new(read(script.as_deref())?);
            let party = Arc::new(PaperBroker::in_memory(script));
            ("broker", listen, broker::simulator(party))
        }
        Party::Cases { listen, script } => {
            let script = cases::Script::new(read(script.as_deref())?);
            let party = Arc::new(PaperCases::in_memory(script));
            ("Case API", listen, cases::simulator(party))
        }
    };
    simulate(name, listen, routes, output).await
}

async fn simulate(
    name: &str,
    listen: SocketAddr,
    routes: Router,
    output: &Output,
) -> Result<(), Failure> {
    let listener = serve::listen(listen).await?;
    let failed = |e: std::io::Error| Failure::caused(Exit::Failed, "the simulator broke down", &e);
    let address = listener.local_addr().map_err(failed)?;
    output.say(&format!("the simulated {name} listens on http://{address}"));
    let stop = tokio_util::sync::CancellationToken::new();
    serve::stop_on_signal(stop.clone())?;
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .map_err(failed)
}

/// The rules of a script; none without one.
fn read<R: DeserializeOwned>(path: Option<&Path>) -> Result<Vec<R>, Failure> {
    let Some(path) = path else {
        return Ok(Vec::new());
    };
    let wrong = |e: &(dyn std::error::Error + 'static)| {
        Failure::caused(Exit::Usage, &format!("the script {}", path.display()), e)
    };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    serde_json::from_str(&text).map_err(|e| wrong(&e))
}
