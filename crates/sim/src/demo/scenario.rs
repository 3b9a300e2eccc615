//! The course of the demo: load, failures, recovery, dead letters, redrive, check.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use postrider::lease::WorkTable;
use postrider_embedded::Postgres;
use sqlx::{PgPool, types::time::OffsetDateTime};
use tokio::{sync::RwLock, time::Instant};
use uuid::Uuid;

use super::{
    Error, ErrorKind, Reporter,
    checker::Report,
    client::ApiClient,
    config,
    leases::Leases,
    load::{self, Load, Progress, Run, exports},
    parties::Parties,
    processes::{self, Launcher, Process},
};

/// The timeout of each phase, on a busy machine.
const PHASE_TIMEOUT: Duration = Duration::from_secs(180);

/// How often a condition is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(400);

/// The timeout of a query that shows whether the database is up.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The killed worker should hold leases of this many services; after the timeout fewer are enough.
const MIN_LEASED_SERVICES: usize = 4;
const LEASES_TIMEOUT: Duration = Duration::from_secs(8);

/// How long the demo waits until other workers have taken over.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// The program's default address, and any free port.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";
const ANY_ADDRESS: &str = "127.0.0.1:0";

/// What the demo runs on.
pub struct Setup<'a> {
    /// The program whose processes it starts.
    pub program: PathBuf,
    /// The data directory.
    pub data_dir: &'a Path,
    /// The embedded database server.
    pub server: &'a Postgres,
    /// Connections to it.
    pub pool: PgPool,
    /// Every work table of the program.
    pub work_tables: Vec<&'static WorkTable>,
    /// How long requests come in.
    pub duration: Duration,
    /// The address of API and console; the default one, or any free port, if none is given.
    pub listen: Option<String>,
}

/// A running demo.
pub struct Demo<'a> {
    server: &'a Postgres,
    reporter: &'a dyn Reporter,
    run: Arc<Run>,
    load: Arc<Load>,
    launcher: Launcher,
    api: Process,
    workers: Vec<Process>,
    /// The number of workers started so far.
    started: usize,
    /// What the killed worker had leased.
    leases: Leases,
}

impl<'a> Demo<'a> {
    /// Starts the simulated parties and the processes, on a migrated database that [`prepare`] has seen first.
    pub async fn start(setup: Setup<'a>, reporter: &'a dyn Reporter) -> Result<Self, Error> {
        let now = sqlx::query_scalar("select clock_timestamp()").fetch_one(&setup.pool);
        let since: OffsetDateTime = now.await.map_err(|e| Error::database(&e))?;
        let parties = Arc::new(Parties::start().await?);
        let launcher = Launcher {
            program: setup.program,
            data_dir: setup.data_dir.to_owned(),
            config: config::write(setup.data_dir, parties.address)?,
            database_url: setup.server.url(),
        };
        let version = setup.server.version();
        reporter.event("started", &format!("PostgreSQL {version}, private"));
        let api = start_api(&launcher, setup.listen.as_deref()).await?;
        parties.callback.forward_to(api.address);
        let run = Arc::new(Run {
            name: format!("demo-{}", &Uuid::new_v4().simple().to_string()[..6]),
            since,
            duration: setup.duration,
            client: ApiClient::new(api.address)?,
            parties,
            pool: setup.pool,
            work_tables: setup.work_tables,
            store: setup.data_dir.join("store"),
            outage: RwLock::new(()),
        });
        let mut demo = Self {
            server: setup.server,
            reporter,
            load: Arc::new(Load::new(&run)),
            run,
            launcher,
            api,
            workers: Vec::new(),
            started: 0,
            leases: Leases::default(),
        };
        reporter.event("started", &format!("API and console at {}", demo.url()));
        demo.start_worker().await?;
        demo.start_worker().await?;
        Ok(demo)
    }

    /// The URL of the console.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/", self.api.address)
    }

    /// Shuts all processes down.
    pub async fn stop(self) {
        let mut processes = self.workers;
        processes.push(self.api);
        processes.iter_mut().for_each(Process::stop);
        for process in processes {
            process.wait().await;
        }
    }

    async fn start_worker(&mut self) -> Result<(), Error> {
        self.started += 1;
        let name = format!("worker {}", self.started);
        let worker = self
            .launcher
            .start(&name, processes::WORKER_ROLES, ANY_ADDRESS)
            .await?;
        self.event("started", &format!("{name}, process {}", worker.pid));
        self.workers.push(worker);
        Ok(())
    }

    fn event(&self, event: &str, detail: &str) {
        self.reporter.event(event, detail);
    }

    /// Runs the demo to its end.
    pub async fn run(&mut self) -> Result<Report, Error> {
        let (load, reporter) = (Arc::clone(&self.load), self.reporter);
        let report_progress = async {
            loop {
                reporter.progress(&load.progress().await);
                tokio::time::sleep(PROGRESS_INTERVAL).await;
            }
        };
        tokio::select! {
            report = self.run_phases() => report,
            never = load.protocols.review() => match never {},
            never = report_progress => never,
        }
    }

    async fn run_phases(&mut self) -> Result<Report, Error> {
        let load = Arc::clone(&self.load);
        let planned: u64 = load.progress().await.iter().map(|p| p.planned).sum();
        let seconds = self.run.duration.as_secs();
        let detail = format!(
            "{planned} items to five services over HTTP in {seconds} s, with injected failures"
        );
        self.event("submitting", &detail);
        tokio::try_join!(load.submit(), self.inject_failures())?;
        self.event("accepted", &format!("all {planned}; no more requests"));
        let runnable_work_is_done = |services: &[Progress]| {
            let expects_dead = ["exports", "orders", "protocols"];
            services.iter().all(|p| {
                p.done + p.blocked >= p.accepted
                    && (p.dead > 0 || !expects_dead.contains(&p.service))
            })
        };
        self.wait_until("all work that can succeed is done", runnable_work_is_done)
            .await?;
        let dead = self.redrive_dead_letters().await?;
        self.wait_until("all work is done", |services| {
            load.evidence.is_notified()
                && services.iter().all(|p| p.done >= p.accepted && p.dead == 0)
        })
        .await?;
        self.event("done", "no work is left");
        self.check(&dead).await
    }

    /// Kills a worker and the database server while work is in progress.
    async fn inject_failures(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        tokio::time::sleep_until(began + self.run.duration.mul_f64(0.25)).await;
        self.kill_worker().await?;
        self.wait_for_recovery().await?;
        self.start_worker().await?;
        tokio::time::sleep_until(began + self.run.duration.mul_f64(0.65)).await;
        self.kill_database().await
    }

    async fn load_leases(&self, pid: u32) -> Result<Leases, Error> {
        Leases::load(&self.run.pool, &self.run.work_tables, pid)
            .await
            .map_err(|e| Error::database(&e))
    }

    async fn unfinished_leases(&self) -> Result<Leases, Error> {
        self.leases
            .unfinished(&self.run.pool, &self.run.work_tables)
            .await
            .map_err(|e| Error::database(&e))
    }

    /// Kills the worker with leases of the most services.
    async fn kill_worker(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + LEASES_TIMEOUT;
        let busiest = loop {
            let mut best = (0, 0, 0);
            for (index, worker) in self.workers.iter().enumerate() {
                let leases = self.load_leases(worker.pid).await?;
                best = best.max((leases.by_service().len(), leases.len(), index));
            }
            if best.0 >= MIN_LEASED_SERVICES || Instant::now() > deadline {
                break best.2;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        let worker = self.workers.remove(busiest);
        let (name, pid) = (worker.name.clone(), worker.pid);
        worker.kill().await?;
        self.leases = self.load_leases(pid).await?;
        let counts: Vec<String> = self
            .leases
            .by_service()
            .iter()
            .map(|(service, count)| format!("{count} {service}"))
            .collect();
        let leased = if counts.is_empty() {
            "nothing".to_owned()
        } else {
            counts.join(", ")
        };
        let detail = format!("kill -9 of {name}, process {pid}, with leases on {leased}");
        self.event("killed", &detail);
        Ok(())
    }

    /// Waits until other workers have finished the killed worker's items, once its leases have expired.
    async fn wait_for_recovery(&self) -> Result<(), Error> {
        let (began, all) = (Instant::now(), self.leases.len());
        loop {
            let left = self.unfinished_leases().await?.len();
            let elapsed = began.elapsed();
            if left == 0 || elapsed > RECOVERY_TIMEOUT {
                let (done, seconds) = (all - left, elapsed.as_secs_f64());
                let detail =
                    format!("{done} of {all} finished by another worker after {seconds:.1} s");
                self.event("recovered", &detail);
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Kills the database server, which restarts by itself.
    async fn kill_database(&self) -> Result<(), Error> {
        let _outage = self.run.outage.write().await;
        let restarts = self.server.restarts();
        if let Some(pid) = self.server.pid().and_then(|pid| i32::try_from(pid).ok()) {
            kill(Pid::from_raw(pid), Signal::SIGKILL)
                .map_err(|e| Error::caused("can't kill the database server", &e))?;
            let detail = format!("kill -9 of the database server, process {pid}");
            self.event("killed", &detail);
        }
        let began = Instant::now();
        while self.server.restarts() == restarts || !is_up(&self.run.pool).await {
            if began.elapsed() > PHASE_TIMEOUT {
                let message = "the database server did not restart";
                return Err(Error::new(ErrorKind::Database, message));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let seconds = began.elapsed().as_secs_f64();
        let detail = format!("the database server is up again after {seconds:.1} s");
        self.event("recovered", &detail);
        Ok(())
    }

    /// Reports the dead letters, fixes their causes and redrives them. Returns the service of each.
    async fn redrive_dead_letters(&self) -> Result<Vec<&'static str>, Error> {
        let mut dead = Vec::new();
        for letter in self.run.dead_letters().await? {
            let service = load::service(&letter);
            let message = letter.message.unwrap_or_default();
            self.event("dead", &format!("{service}: {} ({message})", letter.code));
            dead.push(service);
        }
        self.run.parties.fix_causes()?;
        self.load.exports.fix_cause().await?;
        self.event(
            "fixed",
            "the symbol is listed and has prices, the embargo is lifted",
        );
        self.load.orders.redrive().await?;
        self.load.exports.redrive().await?;
        self.load.protocols.redrive().await?;
        let plural = if dead.len() == 1 { "" } else { "s" };
        let detail = format!(
            "{} dead letter{plural}, through the API of each service",
            dead.len()
        );
        self.event("redriven", &detail);
        Ok(dead)
    }

    async fn check(&self, dead: &[&'static str]) -> Result<Report, Error> {
        let (leased, left) = (
            self.leases.by_service(),
            self.unfinished_leases().await?.by_service(),
        );
        let mut evidence = self.load.evidence().await?;
        for service in &mut evidence {
            let count = |counts: &BTreeMap<&str, usize>| {
                counts.get(service.service).copied().unwrap_or_default()
            };
            service.recovered = count(&leased) - count(&left);
            service.dead = dead.iter().filter(|name| **name == service.service).count();
        }
        self.event(
            "checked",
            "accepted items against the records of the outside parties",
        );
        Ok(Report::new(&evidence))
    }

    async fn wait_until(
        &self,
        goal: &str,
        reached: impl Fn(&[Progress]) -> bool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + PHASE_TIMEOUT;
        loop {
            let services = self.load.progress().await;
            if reached(&services) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let counts = services.iter().map(|p| {
                    let (service, accepted, done, dead) = (p.service, p.accepted, p.done, p.dead);
                    format!("{service}: accepted {accepted}, done {done}, dead {dead}")
                });
                let counts: Vec<String> = counts.collect();
                return Err(Error::failed(format!(
                    "timed out waiting until {goal}; {}",
                    counts.join("; ")
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Starts the API process; if the default address is taken and no other was asked for, on a free port.
async fn start_api(launcher: &Launcher, listen: Option<&str>) -> Result<Process, Error> {
    let start = |address| launcher.start("api", processes::API_ROLES, address);
    match listen {
        Some(address) => start(address).await,
        None => match start(DEFAULT_ADDRESS).await {
            Ok(api) => Ok(api),
            Err(_) => start(ANY_ADDRESS).await,
        },
    }
}

/// Creates the source of the exports' rows, which marks the database as a demo's. Must come before any migration: a
/// database with other work in it is refused, because its work would go to simulated parties.
pub async fn prepare(pool: &PgPool, data_dir: &Path) -> Result<(), Error> {
    let foreign = exports::is_foreign(pool).await;
    if foreign.map_err(|e| Error::database(&e))? {
        let message = format!(
            "{} has a database that does not belong to a demo, and its work would go to simulated parties; choose another directory with --data-dir",
            data_dir.display()
        );
        return Err(Error::new(ErrorKind::Usage, message));
    }
    let created = exports::create_feed(pool).await;
    created.map_err(|e| Error::database(&e))
}

async fn is_up(pool: &PgPool) -> bool {
    let ping = sqlx::query("select 1").execute(pool);
    matches!(tokio::time::timeout(PING_TIMEOUT, ping).await, Ok(Ok(_)))
}
