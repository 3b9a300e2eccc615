//! Alerts: what is wrong right now, judged by the rules that Prometheus judges too.
//!
//! The promises: the rules are declared once ([`RULES`]) and the file for Prometheus is written from them; one process at
//! a time judges, over what the database says of all processes together; a period of trouble is one row of
//! `postrider.alert` and is announced once when it begins to fire and once when it is over, decided in the transaction
//! that records it.
//!
//! Gauge order: [`rule`] (what a rule is), `rules` (all of them), `judge` (pure), `evaluator`, `webhook`, `store`.

mod evaluator;
mod http;
mod judge;
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

pub(crate) use evaluator::evaluate;
pub(crate) use http::routes;
pub use judge::{Holding, Open, Step, holding, step};
pub use prometheus::{expression, prometheus};
pub use rule::{Rule, Severity};
pub use rules::RULES;
pub use settings::Settings;
pub use store::list;
pub(crate) use webhook::{TOPIC, handler};

const FIRING: &str = "postrider_alerts_firing";

/// One period of trouble.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Alert {
    /// The period's id.
    pub id: Uuid,
    /// The rule.
    #[schema(example = "WorkWaits")]
    pub name: String,
    /// Which table, dependency or task; empty where the rule has but one.
    #[schema(example = "orders.outbox_orders")]
    pub subject: String,
    /// How bad it is.
    pub severity: Severity,
    /// Where it stands.
    pub state: Standing,
    /// What was measured last.
    pub value: f64,
    /// What is wrong, in a sentence.
    pub summary: String,
    /// What to do about it.
    pub advice: String,
    /// Since when the condition holds.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// When it had held for as long as the rule says.
    #[serde(with = "time::serde::rfc3339::option")]
    pub fired_at: Option<OffsetDateTime>,
    /// When it was over.
    #[serde(with = "time::serde::rfc3339::option")]
    pub resolved_at: Option<OffsetDateTime>,
}

/// Where a period stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The condition holds, not for long enough yet.
    Pending,
    /// Something is wrong.
    Firing,
    /// It is over.
    Resolved,
}

/// What this process knows of alerts, a few seconds old at most. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct State(Arc<RwLock<Vec<Alert>>>);

impl State {
    /// What is wrong now, the worst first.
    #[must_use]
    pub fn firing(&self) -> Vec<Alert> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let firing = known.iter().filter(|alert| alert.state == Standing::Firing);
        firing.cloned().collect()
    }

    /// Looks again.
    pub async fn refresh(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let found = list(pool).await?;
        for severity in Severity::ALL {
            let of = |alert: &&Alert| alert.severity == severity && alert.state == Standing::Firing;
            let count = u32::try_from(found.iter().filter(of).count()).unwrap_or(u32::MAX);
            gauge!(FIRING, "severity" => severity.as_str()).set(f64::from(count));
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }
}

/// Makes the gauge appear, at zero.
pub fn register() {
    describe_gauge!(FIRING, "Alerts that fire, as the program itself judges");
    for severity in Severity::ALL {
        gauge!(FIRING, "severity" => severity.as_str()).increment(0.0);
    }
}
