//! The simulated outside parties of the demo, all on one port, and their fault scripts.
//!
//! Their records are what the checker goes by.

use std::{net::SocketAddr, sync::Arc};

use axum::Router;
use postrider_protocols::stage::vocabulary::Vocabulary;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::Error;
use crate::{
    FaultScript, Rule,
    broker::{self, SimulatedBroker},
    callback::{self, CallbackProxy},
    case_api::{self, SimulatedCaseApi},
    receiver::{self, Receiver},
    stages::{self, SimulatedStages},
};

/// The symbol that the broker does not list at first, and that has no prices.
pub const UNLISTED: &str = "NEWCO";

/// The stages reject documents with this word in the title until the embargo is lifted.
pub const EMBARGOED: &str = "EMBARGO";

/// Every party, listening.
pub struct Parties {
    /// The address of all of them, each under its own path.
    pub address: SocketAddr,
    /// The trading broker.
    pub broker: Arc<SimulatedBroker>,
    /// The Case API.
    pub cases: Arc<SimulatedCaseApi>,
    /// The pipeline's stages.
    pub stages: Arc<SimulatedStages>,
    /// The link from the wallet to the orchestrator.
    pub callback: Arc<CallbackProxy>,
    /// The receiver of evidence notifications.
    pub receiver: Arc<Receiver>,
    server: JoinHandle<()>,
}

impl Parties {
    /// Starts them on a free port.
    pub async fn start() -> Result<Self, Error> {
        let script = |rules| parse(rules).map(FaultScript::new);
        let vocabulary =
            Vocabulary::built_in().map_err(|e| Error::caused("the built-in vocabulary", &e))?;
        let broker = Arc::new(SimulatedBroker::new(script(broker_rules(false))?));
        let cases = Arc::new(SimulatedCaseApi::new(script(case_api_rules())?));
        let stages = Arc::new(SimulatedStages::new(vocabulary, script(stage_rules(true))?));
        let callback = CallbackProxy::new(script(callback_rules())?)
            .map_err(|e| Error::caused("can't create an HTTP client", &e))?;
        let callback = Arc::new(callback);
        let receiver = Arc::new(Receiver::new(script(receiver_rules())?));
        let routes = Router::new()
            .nest("/broker", broker::routes(Arc::clone(&broker)))
            .nest("/cases", case_api::routes(Arc::clone(&cases)))
            .nest("/stages", stages::routes(Arc::clone(&stages)))
            .nest("/callback", callback::routes(Arc::clone(&callback)))
            .nest("/receiver", receiver::routes(Arc::clone(&receiver)));
        let failed = |e: std::io::Error| Error::caused("can't start the simulated parties", &e);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the simulated parties stopped");
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

    /// Lists the symbol at the broker, and lifts the embargo.
    pub fn fix_causes(&self) -> Result<(), Error> {
        self.broker.script().replace(parse(broker_rules(true))?);
        self.stages.script().replace(parse(stage_rules(false))?);
        Ok(())
    }
}

impl Drop for Parties {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Some orders fail before they are accepted, some afterwards; the rest takes a moment.
fn broker_rules(listed: bool) -> Value {
    let mut rules = vec![
        json!({ "every": 7, "do": { "fail": { "status": 503 } } }),
        json!({ "every": 9, "do": "hang_up" }),
        json!({ "every": 13, "do": { "fail_after": { "status": 500 } } }),
        json!({ "do": { "slow": { "for": "150ms" } } }),
    ];
    if !listed {
        let reject = json!({ "reject": { "reason_code": "UNKNOWN_SYMBOL" } });
        rules.insert(0, json!({ "symbol": UNLISTED, "do": reject }));
    }
    Value::Array(rules)
}

/// Some files fail before they are attached, some afterwards; the rest takes a moment.
fn case_api_rules() -> Value {
    json!([
        { "every": 8, "do": { "fail": { "status": 503 } } },
        { "every": 11, "do": "hang_up" },
        { "every": 13, "do": { "fail_after": { "status": 500 } } },
        { "do": { "slow": { "for": "250ms" } } },
    ])
}

fn stage_rules(embargo: bool) -> Value {
    let mut rules = vec![json!({ "every": 6, "do": { "fail": { "status": 500 } } })];
    if embargo {
        let reject = json!({ "reject": { "reason_code": "this protocol is under embargo" } });
        rules.insert(0, json!({ "title": EMBARGOED, "do": reject }));
    }
    Value::Array(rules)
}

/// Some callbacks are lost on the way there, some answers on the way back.
fn callback_rules() -> Value {
    json!([
        { "every": 7, "do": { "fail": { "status": 503 } } },
        { "every": 11, "do": { "fail_after": { "status": 504 } } },
    ])
}

fn receiver_rules() -> Value {
    json!([{ "every": 4, "do": { "fail": { "status": 503 } } }])
}

fn parse(rules: Value) -> Result<Vec<Rule>, Error> {
    serde_json::from_value(rules).map_err(|e| Error::caused("a fault script of the demo", &e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_fault_script_of_the_demo_is_valid() {
        for rules in [
            broker_rules(true),
            broker_rules(false),
            case_api_rules(),
            stage_rules(true),
            stage_rules(false),
            callback_rules(),
            receiver_rules(),
        ] {
            assert!(!parse(rules).unwrap().is_empty());
        }
    }
}
