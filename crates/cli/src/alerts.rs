//! Alerts: the program evaluates the same rules as Prometheus.
//!
//! The promises: the rules are declared once ([`RULES`]), and the file for Prometheus is generated from them; one process
//! at a time evaluates them, over gauges of all processes; an alert is one row of `postrider.alert` and is announced once
//! when it fires and once when it is resolved, decided in the transaction that records it.
//!
//! Reading order: [`rule`] (what a rule is), `rules` (all of them), `evaluation` (pure), `evaluator`, `webhook`, `store`.

mod evaluation;
mod evaluator;
mod http;
mod prometheus;
pub mod rule;
mod rules;
mod settings;
mod store;
mod webhook;

use std::sync::{Arc, PoisonError, RwLock};

use metrics::{describe_gauge, gauge};
use serde::Serialize;
use sqlx::PgPool;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

pub use evaluation::{Breaches, OpenAlert, Transition, breaches, transitions};
pub(crate) use evaluator::evaluate;
pub(crate) use http::routes;
pub use prometheus::{expression, prometheus};
pub use rule::{Rule, Severity};
pub use rules::RULES;
pub use settings::Settings;
pub use store::list;
pub(crate) use webhook::{TOPIC, handler};

const FIRING: &str = "postrider_alerts_firing";

/// An alert.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Alert {
    /// Its id.
    pub id: Uuid,
    /// The rule's name.
    #[schema(example = "WorkWaits")]
    pub name: String,
    /// The table, dependency or task; empty if the rule has no subject.
    #[schema(example = "orders.outbox_orders")]
    pub subject: String,
    /// Its severity.
    pub severity: Severity,
    /// Its state.
    pub state: AlertState,
    /// The latest value.
    pub value: f64,
    /// What is wrong, in one sentence.
    pub summary: String,
    /// What to do about it.
    pub advice: String,
    /// Since when the condition holds.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// When it fired.
    #[serde(with = "time::serde::rfc3339::option")]
    pub fired_at: Option<OffsetDateTime>,
    /// When it was resolved.
    #[serde(with = "time::serde::rfc3339::option")]
    pub resolved_at: Option<OffsetDateTime>,
}

/// State of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    /// The condition holds, but not for long enough yet.
    Pending,
    /// The condition has held for long enough.
    Firing,
    /// The condition no longer holds.
    Resolved,
}

impl AlertState {
    /// Its name, the same in the API, the CLI and the console.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }
}

/// Alerts as this process last read them, at most a few seconds old. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct State(Arc<RwLock<Vec<Alert>>>);

impl State {
    /// Firing alerts, the most severe first.
    #[must_use]
    pub fn firing(&self) -> Vec<Alert> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let firing = known
            .iter()
            .filter(|alert| alert.state == AlertState::Firing);
        firing.cloned().collect()
    }

    /// Reads them again.
    pub async fn refresh(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let found = list(pool).await?;
        for severity in Severity::ALL {
            let fires =
                |alert: &&Alert| alert.severity == severity && alert.state == AlertState::Firing;
            let count = u32::try_from(found.iter().filter(fires).count()).unwrap_or(u32::MAX);
            gauge!(FIRING, "severity" => severity.as_str()).set(f64::from(count));
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }
}

/// Registers the gauge, at zero.
pub fn register() {
    describe_gauge!(
        FIRING,
        "Firing alerts, as the program itself evaluates them"
    );
    for severity in Severity::ALL {
        gauge!(FIRING, "severity" => severity.as_str()).increment(0.0);
    }
}
