//! Evidence: files attached by the service over the Postgres transport, or by bare loops of the same HTTP calls with the
//! same concurrency; and the upload of a large archive.
//!
//! Arguments: a directory for the files, then the action. Each run has its own database and store, calls a Case API in
//! this process that answers at once, and attaches a small job first: connecting and planning are not measured. For the
//! service, the clock runs from the acceptance of the job until its last file is recorded.

mod bare;
mod ingest;

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::FutureExt;
use postrider::Worker;
use postrider::breaker::{self, Breakers};
use postrider::migrate::Migrator;
use postrider::outbox::OUTBOX;
use postrider::publisher::Publisher;
use postrider::transport::Transport;
use postrider_blob::Store;
use postrider_evidence::cases::{CaseApi, HttpCases};
use postrider_evidence::ingest::Intake;
use postrider_evidence::summary_gate::Gate;
use postrider_evidence::{Settings, notify, task_consumer, worker};
use postrider_sim::case_api::{self, SimulatedCaseApi};
use postrider_transports::PostgresTransport;
use postrider_web::http_client::Endpoint;
use serde_json::json;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zip::{CompressionMethod, write::SimpleFileOptions};

/// Concurrent calls of each system.
const CONCURRENT_CALLS: usize = 16;
const CONNECTIONS: u32 = 20;
const FILES_PER_ROW: u64 = 3;
/// Files of the first job, which is not measured.
const WARM_UP: u64 = 300;
const TIMEOUT: Duration = Duration::from_secs(600);

/// The allocator of the program, because services run in this process.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> Result<()> {
    // The HTTP client needs a TLS provider, although nothing uses TLS here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut arguments = std::env::args().skip(1);
    let files = PathBuf::from(arguments.next().context("the directory is missing")?);
    let action = arguments.next().context("the action is missing")?;
    let pool = pool(&std::env::var("DATABASE_URL")?).await?;
    if action == "setup" {
        let sets = [postrider::migrations(), postrider_evidence::migrations()];
        Migrator::new(sets).run(&mut *pool.acquire().await?).await?;
        return Ok(());
    }
    let count: u64 = std::env::var("BENCH_COUNT")?.parse()?;
    let bytes: usize = std::env::var("BENCH_BYTES")?.parse()?;
    let store = store(&files)?;
    if action == "ingest" {
        return ingest::run(pool, store, count, bytes).await;
    }
    let setup = Setup {
        pool,
        store,
        settings: settings()?,
        cases: cases().await?,
    };
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    if action == "ours" {
        setup.start(&mut tasks, &stop).await?;
    }
    let first = setup.submit(WARM_UP.min(count), bytes).await?;
    setup.attach(&action, first, bytes).await?;
    ready(&format!("{CONCURRENT_CALLS} concurrent calls"))?;
    let job = setup.submit(count, bytes).await?;
    let begun = Instant::now();
    // As for every queue here; autovacuum would run it within a minute.
    sqlx::raw_sql("analyze").execute(&setup.pool).await?;
    setup.attach(&action, job, bytes).await?;
    let seconds = begun.elapsed().as_secs_f64();
    stop.cancel();
    tasks.join_all().await;
    if action == "ours" {
        setup.check(job, count).await?;
    }
    write_event(&json!({ "event": "done", "items": count, "seconds": seconds }))
}

async fn pool(url: &str) -> Result<PgPool> {
    Ok(postrider::internal::pool::options()
        .max_connections(CONNECTIONS)
        .connect(url)
        .await?)
}

fn store(files: &Path) -> Result<Store> {
    Ok(postrider_blob::Settings::directory(files).open(files)?)
}

fn settings() -> Result<Settings> {
    Ok(serde_json::from_value(json!({
        "concurrency": CONCURRENT_CALLS,
        "case_api": { "url": "", "token": "", "timeout": 30, "look_up": false },
        "retry": { "max_attempts": 3, "backoff": { "strategy": "exponential", "initial_delay": "5m", "multiplier": 2,
                   "max_delay": "60m", "jitter_pct": 0.2 } },
        "scheduler": { "batch_size_rows": 200, "sleep_between_batches": 2, "interval": 15 },
        "n2": { "force_after": "24h", "mark_remaining_permanent": true, "when_no_retry": "send" },
        "lease": { "seconds": 30 },
        "notify": { "url": "", "secret": "", "allow_private": false, "timeout": 5,
                    "smtp_url": "", "smtp_from": "", "smtp_to": "" },
        "ingest": { "max_archive": "8GiB", "max_unpacked": "8GiB", "max_file": "1GiB", "max_entries": 100000,
                    "max_ratio": 200, "timeout": "1h" },
        "breaker": { "threshold": "", "open_for": "" },
    }))?)
}

/// The client of a simulated Case API that accepts every file.
async fn cases() -> Result<Arc<dyn CaseApi>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?).parse()?;
    let routes = case_api::routes(Arc::new(SimulatedCaseApi::default()));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(Arc::new(HttpCases::new(Endpoint {
        url,
        token: None,
        timeout: Duration::from_secs(30),
    })?))
}

/// Creates an archive of `count` files with a manifest.
fn archive(count: u64, files_per_row: u64, bytes: usize) -> Result<std::fs::File> {
    let mut zip = zip::ZipWriter::new(tempfile::tempfile()?);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let content = vec![7; bytes];
    let mut manifest = "case_id,reference,files\n".to_owned();
    for row in 0..count / files_per_row {
        let names: Vec<String> = (0..files_per_row)
            .map(|n| format!("r{row}-{n}.pdf"))
            .collect();
        manifest.push_str(&format!("{},R,{}\n", Uuid::new_v4(), names.join(";")));
        for name in names {
            zip.start_file(name, options)?;
            zip.write_all(&content)?;
        }
    }
    zip.start_file("manifest.csv", options)?;
    zip.write_all(manifest.as_bytes())?;
    let mut file = zip.finish()?;
    file.rewind()?;
    Ok(file)
}

/// What every run needs.
struct Setup {
    pool: PgPool,
    store: Store,
    settings: Settings,
    cases: Arc<dyn CaseApi>,
}

impl Setup {
    async fn submit(&self, count: u64, bytes: usize) -> Result<Uuid> {
        let file = archive(count, FILES_PER_ROW, bytes)?;
        let intake = Intake::new(self.pool.clone(), self.store.clone(), &self.settings);
        Ok(intake.zip("m".to_owned(), file).await?.file_job_id)
    }

    /// Starts publisher, consumer, worker and notifier.
    async fn start(&self, tasks: &mut JoinSet<()>, stop: &CancellationToken) -> Result<()> {
        let pool = &self.pool;
        let transport: Arc<dyn Transport> = Arc::new(PostgresTransport::new(pool.clone())?);
        let breakers = Breakers::default();
        let publisher =
            Publisher::new(Arc::clone(&transport), &breakers, pool.clone(), &OUTBOX).await?;
        let publisher = publisher.attach_to(Worker::new(pool.clone(), &OUTBOX)?);
        let worker = worker::worker(
            pool.clone(),
            self.store.clone(),
            &self.settings,
            Arc::clone(&self.cases),
            &breakers,
            breaker::Settings::default(),
        )?;
        let gate = Gate::new(pool.clone(), &self.settings);
        let lease = self.settings.lease.seconds;
        let consumer =
            task_consumer::run(pool.clone(), Arc::clone(&transport), lease, stop.clone());
        tasks.spawn(publisher.run(stop.clone()).map(drop));
        tasks.spawn(consumer.map(drop));
        tasks.spawn(worker.run(stop.clone()).map(drop));
        tasks.spawn(notify::watch(gate, transport, lease, stop.clone()).map(drop));
        Ok(())
    }

    /// Attaches the files of a job, or waits until the service has.
    async fn attach(&self, action: &str, job: Uuid, bytes: usize) -> Result<()> {
        match action {
            "ours" => self.wait_until_attached(job).await,
            "bare" => bare::run(self, job, None).await,
            "calls" => bare::run(self, job, Some(bytes)).await,
            other => bail!("unknown action {other}"),
        }
    }

    /// Waits until no row of the job is PENDING.
    async fn wait_until_attached(&self, job: Uuid) -> Result<()> {
        let begun = Instant::now();
        let pending = "select exists (
            select from evidence.file_job_row where file_job_id = $1 and evidence_status = 'PENDING')";
        loop {
            let pending = sqlx::query_scalar(pending).bind(job);
            if !pending.fetch_one(&self.pool).await? {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < TIMEOUT,
                "timed out before every file was attached"
            );
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Checks that each file was attached in one attempt.
    async fn check(&self, job: Uuid, count: u64) -> Result<()> {
        let (attached, attempts): (i64, i64) = sqlx::query_as(
            "select count(*) filter (where a.attachment_status = 'ATTACHED'), count(t.artifact_id)
             from evidence.file_job_artifact a left join evidence.attach_attempt t on t.artifact_id = a.id
             where a.file_job_id = $1",
        )
        .bind(job)
        .fetch_one(&self.pool)
        .await?;
        let count = i64::try_from(count)?;
        ensure!(
            attached == count && attempts == count,
            "{attached} attached by {attempts} attempts, of {count}"
        );
        Ok(())
    }
}

fn ready(settings: &str) -> Result<()> {
    write_event(&json!({ "event": "ready", "settings": settings }))?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn write_event(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
