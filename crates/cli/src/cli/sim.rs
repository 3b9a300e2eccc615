//! `postrider sim …`: serves one of the simulated outside parties of [`postrider_sim`].

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::Router;
use clap::Subcommand;
use postrider_sim::{FaultScript, broker, case_api};

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
    /// Serve a trading broker: POST /orders, GET /orders/{id}; GET /orders lists its orders, PUT /script sets its faults.
    Broker {
        /// Address and port to listen on.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
        listen: SocketAddr,
        /// Fault script: a JSON list of rules; the first that matches an order decides.
        #[arg(long, value_name = "FILE")]
        script: Option<PathBuf>,
    },
    /// Serve a Case API: PUT and GET /cases/{id}/evidence/{id}; GET /evidence and /calls list its records, PUT /script sets its faults.
    Cases {
        /// Address and port to listen on.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9091")]
        listen: SocketAddr,
        /// Fault script: a JSON list of rules; the first that matches a call decides.
        #[arg(long, value_name = "FILE")]
        script: Option<PathBuf>,
    },
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let (name, listen, routes) = match args.party {
        Party::Broker { listen, script } => {
            let party = broker::SimulatedBroker::new(read_script(script.as_deref())?);
            ("broker", listen, broker::routes(Arc::new(party)))
        }
        Party::Cases { listen, script } => {
            let party = case_api::SimulatedCaseApi::new(read_script(script.as_deref())?);
            ("Case API", listen, case_api::routes(Arc::new(party)))
        }
    };
    serve_party(name, listen, routes, output).await
}

async fn serve_party(
    name: &str,
    listen: SocketAddr,
    routes: Router,
    output: &Output,
) -> Result<(), Failure> {
    let listener = serve::listen(listen).await?;
    let failed = |e: std::io::Error| Failure::caused(Exit::Failed, "the simulator failed", &e);
    let address = listener.local_addr().map_err(failed)?;
    output.say(&format!("the simulated {name} listens on http://{address}"));
    let stop = tokio_util::sync::CancellationToken::new();
    serve::stop_on_signal(stop.clone())?;
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .map_err(failed)
}

fn read_script(path: Option<&Path>) -> Result<FaultScript, Failure> {
    let Some(path) = path else {
        return Ok(FaultScript::default());
    };
    let invalid = |e: &(dyn std::error::Error + 'static)| {
        Failure::caused(Exit::Usage, &format!("the script {}", path.display()), e)
    };
    let text = std::fs::read_to_string(path).map_err(|e| invalid(&e))?;
    FaultScript::from_json(&text).map_err(|e| invalid(&e))
}
