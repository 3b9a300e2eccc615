//! Measures the service on a private PostgreSQL, durable as in production: `make bench-evidence`.
//!
//! - Attaching against a Case API that answers at once, beside a bare loop of the same HTTP calls with as many
//!   connections in the same round. The clock of ours runs from the start of publisher, consumer, worker and notifier,
//!   with everything still in the outbox, until the last file is recorded.
//! - Taking in a large archive, with the peak of resident memory beside what it was before.
//!
//! `ROUNDS` of `COUNT` files of `SIZE` bytes with `CONNECTIONS` calls at once; `ARCHIVE` megabytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Seek, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use postrider_engine::{
    breaker::Breakers, migrate::Migrator, outbox::OUTBOX, publisher::Publisher, runtime::Worker,
    transport::Transport,
};
use postrider_evidence::{
    Settings, arm,
    cases::{CaseApi, Content, HttpCases, HttpSettings, PaperCases, Script, Upload, simulator},
    gate::Gate,
    ingest::Intake,
    notify, worker,
};
use postrider_store::{Key, Store};
use postrider_transports::PostgresTransport;
use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zip::{CompressionMethod, write::SimpleFileOptions};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The services run in this process, and have the program's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::Builder::new().prefix("postrider-").tempdir()?;
    let options = postrider_embedded::Options::new(dir.path().join("data"));
    let server = postrider_embedded::Postgres::start(options).await?;
    let pool = postrider_engine::pool::options()
        .max_connections(60)
        .connect_with(server.connect_options())
        .await?;
    let sets = [
        postrider_engine::migrations(),
        postrider_evidence::migrations(),
    ];
    Migrator::new(sets).run(&mut *pool.acquire().await?).await?;
    let files = dir.path().join("store");
    let store = postrider_store::Settings::directory(&files).open(&files)?;
    attach(&pool, &store).await?;
    ingest(&pool, &store).await?;
    pool.close().await;
    server.stop().await?;
    Ok(())
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

fn settings(connections: usize) -> Settings {
    serde_json::from_value(json!({
        "concurrency": connections,
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
    }))
    .expect("settings")
}

/// Sizes of files: a note, a page, a document or photograph, a scan.
const SIZES: [usize; 4] = [16 << 10, 128 << 10, 1 << 20, 4 << 20];

const WHO: [&str; 3] = [
    "ours, from outbox to record",
    "bare loop: read, hash, call",
    "bare loop: the calls alone, from memory",
];

async fn attach(pool: &PgPool, store: &Store) -> Result<(), Failed> {
    let connections = number("CONNECTIONS", 16);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?).parse()?;
    let paper = Arc::new(PaperCases::in_memory(Script::default()));
    let routes = simulator(Arc::clone(&paper));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let timeout = Duration::from_secs(30);
    let http = HttpSettings {
        url,
        token: None,
        timeout,
    };
    let cases: Arc<dyn CaseApi> = Arc::new(HttpCases::new(http)?);
    let settings = settings(connections);
    let sizes = match number("SIZE", 0) {
        0 => SIZES.to_vec(),
        size => vec![size],
    };
    println!(
        "attach, {connections} at once, files/s; in brackets: ours as a multiple of it, each the median of the rounds"
    );
    for size in sizes {
        let count = number("COUNT", (768 << 20) / size).clamp(3, 3_000) / 3 * 3;
        let mut rounds = Vec::new();
        for _ in 0..number("ROUNDS", 3) {
            let job = hand_in(pool, store, &settings, count, size).await?;
            let keys = keys(pool, job).await?;
            let from_memory = bare(&cases, store, &keys, connections, Some(size)).await?;
            let from_store = bare(&cases, store, &keys, connections, None).await?;
            let ours = ours(pool, store, &settings, &cases, job, count).await?;
            rounds.push([ours, from_store, from_memory]);
        }
        println!("  {count} files of {} KB", size >> 10);
        for (place, words) in WHO.iter().enumerate() {
            let rate = median(rounds.iter().map(|round| round[place]));
            let ratio = median(rounds.iter().map(|round| round[0] / round[place]));
            println!("    {words:40} {rate:8.0} ({ratio:.2}×)");
        }
    }
    Ok(())
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Where the files of a job are.
async fn keys(pool: &PgPool, job: Uuid) -> Result<Vec<String>, Failed> {
    let keys = "select s3_key from evidence.file_job_artifact where file_job_id = $1";
    Ok(sqlx::query_scalar(keys).bind(job).fetch_all(pool).await?)
}

/// The same calls for the same files, and nothing else: a call carries a file and its SHA-256, so each is read and hashed.
/// With a size, not even that: the same bytes from memory again and again.
async fn bare(
    cases: &Arc<dyn CaseApi>,
    store: &Store,
    keys: &[String],
    connections: usize,
    in_memory: Option<usize>,
) -> Result<f64, Failed> {
    let ready = in_memory.map(|size| {
        let content = Bytes::from(vec![7; size]);
        (hex::encode(Sha256::digest(&content)), content)
    });
    let started = Instant::now();
    stream::iter(keys)
        .for_each_concurrent(connections, |key| {
            let (key, ready) = (Key::from(key.as_str()), ready.clone());
            let (cases, store) = (Arc::clone(cases), store.clone());
            let call = async move {
                let (sha256, content) = match ready {
                    Some(ready) => ready,
                    None => {
                        let content = store.get(&key).await.expect("found").whole().await;
                        let content = content.expect("read");
                        (hex::encode(Sha256::digest(&content)), content)
                    }
                };
                let upload = Upload {
                    case_id: Uuid::nil(),
                    artifact_id: Uuid::new_v4(),
                    file_name: "f.pdf".to_owned(),
                    file_type: Some("application/pdf".to_owned()),
                    sha256,
                    size: content.len() as u64,
                    content: Content::Whole(content),
                };
                cases.attach(upload).await.expect("attached");
            };
            async { tokio::spawn(call).await.expect("a call") }
        })
        .await;
    Ok(keys.len() as f64 / started.elapsed().as_secs_f64())
}

/// Three files in a row, all in one archive.
async fn hand_in(
    pool: &PgPool,
    store: &Store,
    settings: &Settings,
    count: usize,
    size: usize,
) -> Result<Uuid, Failed> {
    let mut zip = zip::ZipWriter::new(tempfile::tempfile()?);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut manifest = "case_id,reference,files\n".to_owned();
    for row in 0..count / 3 {
        manifest.push_str(&format!(
            "{},R,a{row}.pdf;b{row}.pdf;c{row}.pdf\n",
            Uuid::new_v4()
        ));
        for letter in ["a", "b", "c"] {
            zip.start_file(format!("{letter}{row}.pdf"), options)?;
            zip.write_all(&vec![7; size])?;
        }
    }
    zip.start_file("manifest.csv", options)?;
    zip.write_all(manifest.as_bytes())?;
    let mut file = zip.finish()?;
    file.rewind()?;
    let accepted = Intake::new(pool.clone(), store.clone(), settings)
        .zip("m".to_owned(), file)
        .await?;
    Ok(accepted.file_job_id)
}

async fn ours(
    pool: &PgPool,
    store: &Store,
    settings: &Settings,
    cases: &Arc<dyn CaseApi>,
    job: Uuid,
    count: usize,
) -> Result<f64, Failed> {
    let stop = CancellationToken::new();
    let transport: Arc<dyn Transport> = Arc::new(PostgresTransport::new(pool.clone())?);
    let breakers = Breakers::default();
    let publisher =
        Publisher::new(Arc::clone(&transport), &breakers, pool.clone(), &OUTBOX).await?;
    let publisher = Worker::new(pool.clone(), &OUTBOX)?.handle_others(publisher.handler());
    let common = postrider_engine::breaker::Settings::default();
    let attacher = worker::worker(
        pool.clone(),
        store.clone(),
        settings,
        Arc::clone(cases),
        &breakers,
        common,
    )?;
    let gate = Gate::new(pool.clone(), settings);
    let lease = settings.lease.seconds;
    let count = i64::try_from(count)?;
    let mut parts = JoinSet::new();
    let started = Instant::now();
    parts.spawn(publisher.run(stop.clone()).map(drop));
    parts.spawn(arm::run(pool.clone(), Arc::clone(&transport), lease, stop.clone()).map(drop));
    parts.spawn(attacher.run(stop.clone()).map(drop));
    parts.spawn(notify::watch(gate, transport, lease, stop.clone()).map(drop));
    let attached = "select coalesce(sum(evidence_attached_count), 0) from evidence.file_job_row where file_job_id = $1";
    while sqlx::query_scalar::<_, i64>(attached)
        .bind(job)
        .fetch_one(pool)
        .await?
        < count
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rate = count as f64 / started.elapsed().as_secs_f64();
    stop.cancel();
    parts.join_all().await;
    Ok(rate)
}

/// In KiB: resident now, or the peak since it was last reset.
fn memory(what: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or_default()
}

async fn ingest(pool: &PgPool, store: &Store) -> Result<(), Failed> {
    let megabytes = number("ARCHIVE", 1_024);
    let mut zip = zip::ZipWriter::new(tempfile::tempfile()?);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut manifest = "case_id,reference,files\n".to_owned();
    let piece = vec![7; 1 << 20];
    for n in 0..megabytes.div_ceil(16) {
        manifest.push_str(&format!("{},R,f{n}.pdf\n", Uuid::new_v4()));
        zip.start_file(format!("f{n}.pdf"), options)?;
        for _ in 0..16 {
            zip.write_all(&piece)?;
        }
    }
    zip.start_file("manifest.csv", options)?;
    zip.write_all(manifest.as_bytes())?;
    let mut file = zip.finish()?;
    let bytes = file.stream_position()?;
    file.rewind()?;
    let evidence = postrider_evidence::Evidence::start(pool.clone(), store.clone(), &settings(16))?;
    let (router, _) =
        postrider_evidence::routes::<postrider_evidence::Evidence>().split_for_parts();
    let router = postrider_web::shell(
        router.with_state(evidence),
        postrider_web::ShellOptions::default(),
    );
    let pieces = stream::unfold(file, |mut file| async move {
        let mut piece = vec![0; 256 * 1024];
        let read = file.read(&mut piece).expect("read the archive");
        piece.truncate(read);
        (read > 0).then(|| (Ok::<_, std::io::Error>(Bytes::from(piece)), file))
    });
    let request = axum::http::Request::post("/file-jobs?merchant_id=m")
        .header("content-type", "application/zip")
        .body(Body::from_stream(pieces))?;
    let before = memory("VmRSS");
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let started = Instant::now();
    let answer = tower::ServiceExt::oneshot(router, request).await?;
    let (status, took) = (answer.status(), started.elapsed());
    let extra = memory("VmHWM").saturating_sub(before) / 1024;
    assert_eq!(status, 202, "the archive is taken in");
    println!("ingest: an archive of {} MB in {took:.1?}", bytes >> 20);
    println!(
        "  {:.0} MB/s, {extra} MB of memory beside what was resident before",
        bytes as f64 / (1 << 20) as f64 / took.as_secs_f64()
    );
    Ok(())
}
