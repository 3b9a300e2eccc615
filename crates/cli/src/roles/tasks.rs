//! Background tasks: what a process runs next to the HTTP server, from start to stop, according to its roles.

use std::{pin::Pin, sync::Arc, time::Duration};

use postrider::WorkerPool;
use postrider::breaker::{self, Breakers};
use postrider::transport::Transport;
use postrider_blob::Store;
use postrider_transports::PostgresTransport;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Role, Roles, analyze, cleanup, publisher, store_sweep};
use crate::{
    alerts,
    config::Config,
    database::Database,
    exit::{Exit, Failure, chain},
    http::Readiness,
    observe::{self, Gauges},
    operate, services,
};

/// How long tasks may take to stop; a stopping worker may finish the items that it holds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(40);

/// A task that runs in processes that have its role.
pub struct Task {
    role: Role,
    run: Pin<Box<dyn Future<Output = postrider::Result<()>> + Send>>,
}

impl Task {
    /// A task for this role. It must end when [`Resources::stop`] is cancelled.
    pub fn new(
        role: Role,
        run: impl Future<Output = postrider::Result<()>> + Send + 'static,
    ) -> Self {
        Self {
            role,
            run: Box::pin(run),
        }
    }
}

/// What tasks are built from.
pub struct Resources {
    /// The database.
    pub pool: PgPool,
    /// Connections that all workers share.
    pub worker_pool: WorkerPool,
    /// The configured transport.
    pub transport: Arc<dyn Transport>,
    /// The message log in the database, whatever the transport.
    pub log: PostgresTransport,
    /// The object store.
    pub store: Store,
    /// One breaker per outside dependency.
    pub breakers: Breakers,
    /// Cancelled when tasks must end.
    pub stop: CancellationToken,
}

/// The running tasks of a process.
pub struct Tasks {
    running: JoinSet<()>,
}

impl Tasks {
    /// Starts the tasks of these roles and reports them to `readiness`.
    pub async fn start(
        config: &Config,
        roles: &Roles,
        database: &Database,
        store: Store,
        alerts: alerts::State,
        readiness: &Arc<Readiness>,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        observe::register();
        let pool = database.pool().clone();
        let log = PostgresTransport::new(pool.clone())
            .map_err(|e| Failure::caused(Exit::Database, "a role can't be started", &e))?;
        let resources = Resources {
            worker_pool: WorkerPool::with_max_connections(
                &pool,
                config.database.worker_connections,
            ),
            pool,
            transport: config.transport.open(log.clone()),
            log,
            store,
            breakers: Breakers::new(config.breaker),
            stop,
        };
        let gauges = Gauges::new(resources.pool.clone(), database.wallet().cloned());
        let mut tasks = Self {
            running: JoinSet::new(),
        };
        tasks.running.spawn(breaker::publish(
            resources.pool.clone(),
            resources.breakers.clone(),
            resources.stop.clone(),
        ));
        tasks
            .running
            .spawn(gauges.clone().run(alerts, resources.stop.clone()));
        let mut all = services::tasks(&resources, config)?;
        if roles.has(Role::Publisher) {
            let worker = publisher::worker(&resources, &config.alerts).await?;
            all.push(Task::new(
                Role::Publisher,
                worker.run(resources.stop.clone()),
            ));
        }
        all.extend(scheduled(&resources, config, database, gauges));
        for task in all.into_iter().filter(|task| roles.has(task.role)) {
            tasks.spawn(task, readiness);
        }
        // The HTTP server serves the API and the console.
        for role in [Role::Api, Role::Console] {
            readiness.started(role);
        }
        Ok(tasks)
    }

    /// A task that ends before the stop has failed: log it and let `/readyz` show it.
    fn spawn(&mut self, task: Task, readiness: &Arc<Readiness>) {
        let Task { role, run } = task;
        readiness.started(role);
        let readiness = Arc::clone(readiness);
        self.running.spawn(async move {
            if let Err(error) = run.await {
                readiness.failed(role);
                tracing::error!(
                    %role,
                    error = chain(&error),
                    "a background task failed and has stopped; fix the cause and restart the process"
                );
            }
        });
    }

    /// Waits until all tasks have ended, after the stop.
    pub async fn ended(mut self) {
        let all = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::warn!(
                "a background task did not stop in time; its items are claimed again when their leases expire"
            );
        }
    }
}

/// Periodic tasks that belong to no service.
fn scheduled(
    resources: &Resources,
    config: &Config,
    database: &Database,
    gauges: Gauges,
) -> Vec<Task> {
    let (pool, stop) = (&resources.pool, &resources.stop);
    let wallet = database.wallet().cloned();
    let operations = operate::run_operations(pool.clone(), wallet, stop.clone());
    let alerts = alerts::evaluate(pool.clone(), gauges, config.alerts.clone(), stop.clone());
    vec![
        Task::new(Role::Scheduler, cleanup::task(resources, config.retention)),
        Task::new(Role::Scheduler, store_sweep::task(resources)),
        Task::new(Role::Scheduler, analyze::task(resources)),
        Task::new(Role::Scheduler, operations),
        Task::new(Role::Scheduler, alerts),
    ]
}
