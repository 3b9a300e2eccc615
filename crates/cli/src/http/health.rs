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

/// A database that takes longer than this to respond counts as unavailable.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Which of the requested roles are running.
#[derive(Debug)]
pub struct Readiness {
    asked: Roles,
    running: Mutex<BTreeSet<Role>>,
}

impl Readiness {
    /// No role is running yet.
    #[must_use]
    pub fn new(asked: Roles) -> Self {
        Self {
            asked,
            running: Mutex::new(BTreeSet::new()),
        }
    }

    /// This role is running.
    pub fn started(&self, role: Role) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(role);
    }

    /// This role has failed.
    pub fn failed(&self, role: Role) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&role);
    }

    /// The process is stopping: a load balancer should use another one.
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

/// The process is alive.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    #[schema(example = "ok")]
    status: &'static str,
    version: &'static str,
}

/// Whether the process is ready, and if not, why.
#[derive(Debug, Serialize, ToSchema)]
struct Ready {
    /// `ready` or `not ready`.
    #[schema(example = "ready")]
    status: &'static str,
    checks: BTreeMap<&'static str, Check>,
}

/// One check.
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
/// Does not check the database: restarting the process would not make it available.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "alive", body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Is the process ready?
///
/// 200 only when the schema is up to date, the database responds and every requested role is running.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "ready", body = Ready),
    (status = 503, description = "not ready, and why", body = Ready),
))]
async fn readyz(extract::State(state): extract::State<State>) -> (StatusCode, Json<Ready>) {
    let ping = sqlx::query("select 1").execute(&state.pool);
    let database = match tokio::time::timeout(DATABASE_TIMEOUT, ping).await {
        Ok(Ok(_)) => Check {
            ok: true,
            detail: "answers".into(),
        },
        Ok(Err(error)) => {
            tracing::warn!(%error, "the database does not respond");
            Check {
                ok: false,
                detail: "does not respond".into(),
            }
        }
        Err(_) => Check {
            ok: false,
            detail: format!("no response within {DATABASE_TIMEOUT:?}"),
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
