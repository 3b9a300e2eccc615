//! What runs beside the HTTP server: the parts that the roles ask for, from start to stop.

use std::{sync::Arc, time::Duration};

use postrider::breaker::{self, Breakers};
use postrider::runtime::WorkerPool;
use postrider::transport::Transport;
use postrider_blob::Store;
use postrider_transports::PostgresTransport;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Role, Roles, analyze, housekeeper, publisher, sweeper};
use crate::{
    alerts,
    config::Config,
    database::Database,
    exit::{Exit, Failure, chain},
    http::Readiness,
    observe::{self, Gauges},
    operate, services,
};

/// How long parts may take to end in order; a worker that stops may finish what it holds.
const PATIENCE: Duration = Duration::from_secs(40);

/// The running parts of one process.
pub struct Parts {
    tasks: JoinSet<()>,
}

/// What every part is made from.
pub struct Resources {
    /// The database.
    pub pool: PgPool,
    /// What all workers of it share beside the pool.
    pub side: WorkerPool,
    /// Where messages go: the one that is configured.
    pub transport: Arc<dyn Transport>,
    /// The log of messages in the database, whatever the transport.
    pub log: PostgresTransport,
    /// Where files go.
    pub store: Store,
    /// One breaker for each outside dependency.
    pub breakers: Breakers,
    /// Told when to end.
    pub stop: CancellationToken,
}

impl Parts {
    /// Starts what the roles ask for, and tells `readiness` what runs.
    pub async fn start(
        config: &Config,
        roles: &Roles,
        database: &Database,
        store: Store,
        alerts: alerts::State,
        readiness: &Arc<Readiness>,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        let failed =
            |e: postrider::Error| Failure::caused(Exit::Database, "a role can't be started", &e);
        observe::register();
        let pool = database.pool().clone();
        let gauges = Gauges::new(pool.clone(), database.wallet().cloned());
        let breakers = Breakers::new(config.breaker);
        let log = PostgresTransport::new(pool.clone()).map_err(failed)?;
        let transport = config.transport.open(log.clone());
        let ground = Resources {
            side: WorkerPool::with_max_connections(&pool, config.database.worker_connections),
            pool,
            transport,
            log,
            store,
            breakers,
            stop,
        };
        let mut parts = Self {
            tasks: JoinSet::new(),
        };
        let board = (
            ground.pool.clone(),
            ground.breakers.clone(),
            ground.stop.clone(),
        );
        parts
            .tasks
            .spawn(breaker::publish(board.0, board.1, board.2));
        parts
            .tasks
            .spawn(gauges.clone().run(alerts, ground.stop.clone()));
        if roles.has(Role::Publisher) {
            let worker = publisher::part(&ground, &config.alerts).await?;
            parts.run(Role::Publisher, readiness, worker.run(ground.stop.clone()));
        }
        if roles.has(Role::Scheduler) {
            let task = housekeeper::part(&ground, config.retention);
            parts.run(Role::Scheduler, readiness, task);
            parts.run(Role::Scheduler, readiness, sweeper::part(&ground));
            parts.run(Role::Scheduler, readiness, analyze::part(&ground));
            let operations = operate::run_operations(
                ground.pool.clone(),
                database.wallet().cloned(),
                ground.stop.clone(),
            );
            parts.run(Role::Scheduler, readiness, operations);
            let judge = alerts::evaluate(
                ground.pool.clone(),
                gauges.clone(),
                config.alerts.clone(),
                ground.stop.clone(),
            );
            parts.run(Role::Scheduler, readiness, judge);
        }
        for service in &services::ALL {
            let wanted = (service.parts)(&ground, config)?;
            for part in wanted {
                if roles.has(part.role) {
                    parts.run(part.role, readiness, part.work);
                }
            }
        }
        // The API and the console are the HTTP server's.
        for role in [Role::Api, Role::Console] {
            readiness.started(role);
        }
        Ok(parts)
    }

    /// A part that ends before it is told to can't work: that is said, and `/readyz` shows it.
    fn run(
        &mut self,
        role: Role,
        readiness: &Arc<Readiness>,
        part: impl Future<Output = postrider::Result<()>> + Send + 'static,
    ) {
        readiness.started(role);
        let readiness = Arc::clone(readiness);
        self.tasks.spawn(async move {
            if let Err(error) = part.await {
                readiness.failed(role);
                tracing::error!(%role, error = chain(&error), "a role has stopped working");
            }
        });
    }

    /// Waits until all have ended; they were told to by the token that they were started with.
    pub async fn ended(mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            tracing::warn!(
                "a part of the program did not end in order; what it held is claimed again"
            );
        }
    }
}
