//! The outside world of the demo: parties that misbehave on purpose and keep logs of their own.
//!
//! They are behind HTTP like the real ones, and their logs are the evidence that the checker goes by: a broker, a Case
//! API, two pipeline stages, the road between the wallet and the orchestrator, and a receiver of notifications.

pub mod broker;
pub mod callback;
pub mod receiver;
pub mod stages;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::Router;
use postrider_evidence::cases::{self, PaperCases};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    cli::serve,
    exit::{Exit, Failure},
};

/// Every party, listening.
pub struct Parties {
    /// Where they all listen, each under its own path.
    pub address: SocketAddr,
    /// The trading broker.
    pub broker: Arc<broker::Broker>,
    /// The Case API.
    pub cases: Arc<PaperCases>,
    /// The pipeline's stages.
    pub stages: Arc<stages::Stages>,
    /// The road from the wallet to the orchestrator.
    pub callback: Arc<callback::Road>,
    /// Who is notified of evidence.
    pub receiver: Arc<receiver::Receiver>,
    server: JoinHandle<()>,
}

impl Parties {
    /// Opens them all on a free port.
    pub async fn open() -> Result<Self, Failure> {
        let broker = Arc::new(broker::Broker::new()?);
        let cases = Arc::new(PaperCases::in_memory(cases::Script::new(rules(
            cases_script(),
        )?)));
        let stages = Arc::new(stages::Stages::new()?);
        let callback = Arc::new(callback::Road::new()?);
        let receiver = Arc::new(receiver::Receiver::default());
        let routes = Router::new()
            .nest("/broker", broker::routes(Arc::clone(&broker)))
            .nest("/cases", cases::simulator(Arc::clone(&cases)))
            .nest("/stages", stages::routes(Arc::clone(&stages)))
            .nest("/callback", callback::routes(Arc::clone(&callback)))
            .nest("/receiver", receiver::routes(Arc::clone(&receiver)));
        let listener = serve::listen(([127, 0, 0, 1], 0).into()).await?;
        let address = listener
            .local_addr()
            .map_err(|e| Failure::caused(Exit::Failed, "the parties have no address", &e))?;
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the simulated parties broke down");
            }
        });
        Ok(Self {
            address,
            broker,
            cases,
            stages,
            callback,
            receiver,
            server,
        })
    }
}

impl Drop for Parties {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Some files fail before they are attached, some afterwards; the rest takes a moment.
fn cases_script() -> Value {
    json!([
        { "every": 8, "do": { "fail": { "status": 503 } } },
        { "every": 11, "do": "hang_up" },
        { "every": 13, "do": { "fail_after": { "status": 500 } } },
        { "do": { "slow": { "for": "250ms" } } },
    ])
}

/// The rules of a script.
fn rules<R: DeserializeOwned>(script: Value) -> Result<Vec<R>, Failure> {
    serde_json::from_value(script)
        .map_err(|e| Failure::caused(Exit::Failed, "the script of the demo", &e))
}

/// A log's content, whoever panicked while writing to it.
fn lock<T>(log: &Mutex<T>) -> MutexGuard<'_, T> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
