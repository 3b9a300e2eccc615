//! `/healthz` and `/readyz`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::{Json, extract, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::State;
use crate::roles::{Role, Roles};

/// A database that takes longer than this to say anything is as good as away.
const PATIENCE: Duration = Duration::from_secs(2);

/// Which of the roles that were asked for run.
#[derive(Debug)]
pub struct Readiness {
    asked: Roles,
    running: Mutex<BTreeSet<Role>>,
}

impl Readiness {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(asked: Roles) -> Self {
        Self {
            asked,
            running: Mutex::new(BTreeSet::new()),
        }
    }

    /// This role runs from now on.
    pub fn started(&self, role: Role) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(role);
    }

    /// This role can't work any more.
    pub fn failed(&self, role: Role) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&role);
    }

    /// Nothing new is taken on: a load balancer should look elsewhere.
    pub fn stopping(&self) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn missing(&self) -> Vec<Role> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked
            .iter()
            .filter(|role| !running.contains(role))
            .collect()
    }
}

/// The process lives.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    #[schema(example = "ok")]
    status: &'static str,
    version: &'static str,
}

/// Whether the process can work, and if not, why.
#[derive(Debug, Serialize, ToSchema)]
struct Ready {
    /// `ready` or `not ready`.
    #[schema(example = "ready")]
    status: &'static str,
    checks: BTreeMap<&'static str, Check>,
}

/// One thing that must hold.
#[derive(Debug, Serialize, ToSchema)]
struct Check {
    ok: bool,
    detail: String,
}

pub(super) fn routes() -> OpenApiRouter<State> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
}

/// Is the process alive?
///
/// Says nothing about the database: a process whose database is away should not be restarted for it.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "alive", body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Can the process work?
///
/// 200 only when the schema is up to date, the database answers and every role asked for runs.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "ready", body = Ready),
    (status = 503, description = "not ready, and why", body = Ready),
))]
async fn readyz(extract::State(state): extract::State<State>) -> (StatusCode, Json<Ready>) {
    let ping = sqlx::query("select 1").execute(&state.pool);
    let database = match tokio::time::timeout(PATIENCE, ping).await {
        Ok(Ok(_)) => Check {
            ok: true,
            detail: "answers".into(),
        },
        Ok(Err(error)) => {
            tracing::warn!(%error, "the database does not answer");
            Check {
                ok: false,
                detail: "does not answer".into(),
            }
        }
        Err(_) => Check {
            ok: false,
            detail: format!("no answer within {PATIENCE:?}"),
        },
    };
    let missing = state.readiness.missing();
    let roles = if missing.is_empty() {
        Check {
            ok: true,
            detail: format!("running: {}", state.readiness.asked),
        }
    } else {
        let names: Vec<&str> = missing.into_iter().map(Role::name).collect();
        Check {
            ok: false,
            detail: format!("not running: {}", names.join(",")),
        }
    };
    let ok = database.ok && roles.ok;
    let status = if ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let checks = BTreeMap::from([("database", database), ("roles", roles)]);
    (
        status,
        Json(Ready {
            status: if ok { "ready" } else { "not ready" },
            checks,
        }),
    )
}
