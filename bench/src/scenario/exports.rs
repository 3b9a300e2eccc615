//! Exports: a large request accepted, small files created, files reused, one large file streamed; each compared with the
//! same work without the service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::TryStreamExt;
use postrider::{breaker::Breakers, migrate::Migrator};
use postrider_blob::{Key, Settings as StoreSettings, Store};
use postrider_exports::{
    Exports, Settings,
    model::{JobRequest, Submission},
    service::AcceptOutcome,
    worker,
};
use serde_json::{Value, json};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio_util::sync::CancellationToken;

use super::Bench;
use crate::CACHE;
use crate::adapter::Request;
use crate::drain::Until;
use crate::limit;
use crate::peer::OURS;
use crate::plan::log;
use crate::results::LIMIT;

const DATABASE: &str = "run_exports";

/// Connections to the source, of the service and of the bare loop.
const CONNECTIONS: u32 = 8;

/// Jobs that reuse the same files; one would end before the worker has warmed up.
const REUSING_JOBS: usize = 5;

/// The rows of a small file, as in the bundled sample.
const SMALL_QUERY: &str = "select $1 as key, n as rank, 'constituent-' || n as name, n * 7919 % 90000 as shares, 12.5 + n as price from generate_series(1, 100) n";

/// A row of about a hundred bytes.
const LARGE_QUERY: &str = "select n, 'constituent-' || n as name, n::bigint * 7919 % 90000 as shares, '0123456789012345678901234567890123456789012345678901234567890123' as filler";

impl Bench {
    /// Runs all four in rounds.
    pub(super) async fn exports(&mut self) -> Result<()> {
        let (inputs, files, bytes) = if self.plan.quick {
            (100_000, 5_000, 100_000_000)
        } else {
            (100_000, 20_000, 1_000_000_000)
        };
        let dir = std::path::absolute(Path::new(CACHE).join("exports"))?;
        spread_directories(&dir)?;
        for round in 1..=self.plan.rounds {
            log(&format!("exports: round {round}"));
            self.exports_drain().await?;
            let name = format!("{}-{round}", std::process::id());
            let setup = Setup::new(&self.cluster, &dir, &name).await?;
            let (seconds, memory) = setup.accept(inputs).await?;
            let note = |results: &mut crate::results::Results, measure, unit, who, value| {
                results.record(measure, unit, who, "8 connections", value);
            };
            let results = &mut self.results;
            note(
                results,
                "exports/accept",
                "inputs/s",
                OURS,
                inputs as f64 / seconds,
            );
            note(
                results,
                "exports/accept-memory",
                "additional MB",
                OURS,
                memory,
            );
            setup.empty().await?;
            note(
                results,
                "exports/small",
                "files/s",
                LIMIT,
                setup.bare(files).await?,
            );
            let (made, reused) = setup.small(files).await?;
            note(results, "exports/small", "files/s", OURS, made);
            note(results, "exports/reused", "inputs/s", OURS, reused);
            setup.empty().await?;
            note(
                results,
                "exports/large",
                "MB/s",
                LIMIT,
                setup.psql(bytes).await?,
            );
            let (rate, memory) = setup.large(bytes).await?;
            note(results, "exports/large", "MB/s", OURS, rate);
            note(
                results,
                "exports/large-memory",
                "additional MB",
                OURS,
                memory,
            );
            setup.end().await;
            self.cluster.drop_database(DATABASE).await?;
        }
        // Only after all measurements: see `spread_directories`.
        let _ = std::fs::remove_dir_all(&dir);
        Ok(())
    }

    /// Measures the library's own drain in this run.
    async fn exports_drain(&mut self) -> Result<()> {
        let count = self.plan.drain;
        let Some(ours) = self
            .peers
            .iter()
            .find(|(peer, _)| peer.name == OURS)
            .cloned()
        else {
            return Ok(());
        };
        let request = Request::new("work", count);
        let drained = self
            .turn("exports/drain", &ours, async |turn| {
                turn.fill(count, 0, 0).await?;
                turn.cluster.analyze(&turn.database).await?;
                turn.work(&request, 1, Until::Empty).await
            })
            .await;
        if let Some(drained) = drained {
            let settings = drained.settings.as_str();
            self.results
                .record("exports/drain", "items/s", OURS, settings, drained.rate);
        }
        Ok(())
    }
}

/// A database, an object store and the service.
struct Setup {
    url: String,
    pool: PgPool,
    dir: PathBuf,
    store: Store,
    /// The store of the bare loop.
    bare: Store,
    exports: Exports,
    stop: CancellationToken,
}

impl Setup {
    async fn new(cluster: &crate::cluster::Cluster, dir: &Path, name: &str) -> Result<Self> {
        cluster.create_database(DATABASE, None).await?;
        let pool = postrider::internal::pool::options()
            .max_connections(20)
            .connect_with(cluster.options(DATABASE))
            .await?;
        let mut connection = pool.acquire().await?;
        Migrator::new([postrider::migrations(), postrider_exports::migrations()])
            .run(&mut connection)
            .await?;
        drop(connection);
        let open = |dir: &Path| StoreSettings::directory(dir).open(dir);
        let (store, bare) = (
            open(&dir.join(name))?,
            open(&dir.join(format!("{name}-bare")))?,
        );
        let stop = CancellationToken::new();
        let exports = Exports::start(pool.clone(), store.clone(), stop.clone());
        Ok(Self {
            url: cluster.url(DATABASE),
            pool,
            dir: dir.to_owned(),
            store,
            bare,
            exports,
            stop,
        })
    }

    async fn end(self) {
        self.stop.cancel();
        self.pool.close().await;
    }

    /// Removes the work of the previous measurement.
    async fn empty(&self) -> Result<()> {
        let tables = "exports.export_job, exports.export_job_input, exports.export_artifact, exports.export_generation";
        let sql = format!("truncate {tables}; checkpoint");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Seconds from the JSON text to the durable job, and additional megabytes of memory.
    async fn accept(&self, inputs: usize) -> Result<(f64, f64)> {
        let text = request(inputs);
        let before = memory_reset()?;
        let started = Instant::now();
        let request: JobRequest = serde_json::from_str(&text)?;
        let job = self
            .exports
            .accept(&Submission::try_from(request)?, None)
            .await?;
        let seconds = started.elapsed().as_secs_f64();
        ensure!(matches!(job, AcceptOutcome::Accepted(_)), "accepted");
        Ok((seconds, memory_peak()? - before))
    }

    /// Files per second of a loop of COPY and write.
    async fn bare(&self, files: usize) -> Result<f64> {
        let source = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .min_connections(CONNECTIONS)
            .connect(&self.url)
            .await?;
        let next = Arc::new(AtomicUsize::new(0));
        let started = Instant::now();
        let loops: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let (source, store, next) = (source.clone(), self.bare.clone(), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut connection = source.acquire().await?;
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= files {
                            return Ok::<(), anyhow::Error>(());
                        }
                        let query = SMALL_QUERY.replace("$1", &format!("'K{number:05}'"));
                        let copy = format!("copy ({query}) to stdout (format csv, header)");
                        let rows: Vec<Bytes> =
                            connection.copy_out_raw(&copy).await?.try_collect().await?;
                        let key = Key::from(format!("exports/K{number:05}_20240202_CLS.csv"));
                        store.put(&key, rows.concat().into()).await?;
                    }
                })
            })
            .collect();
        for task in loops {
            task.await??;
        }
        let rate = files as f64 / started.elapsed().as_secs_f64();
        source.close().await;
        Ok(rate)
    }

    /// Files per second of a job that creates them, and inputs per second of jobs that reuse them.
    async fn small(&self, files: usize) -> Result<(f64, f64)> {
        let stop = self.stop.child_token();
        self.submit(files).await?;
        let made = self.work(SMALL_QUERY, &stop).await?;
        for _ in 0..REUSING_JOBS {
            self.submit(files).await?;
        }
        let reused = self.work(SMALL_QUERY, &stop).await?;
        let counted: (i64, i64) = sqlx::query_as("select count(*) filter (where not is_reused), count(*) filter (where is_reused) from exports.export_job_input where status = 'SUCCEEDED'")
            .fetch_one(&self.pool)
            .await?;
        let all = i64::try_from(files)?;
        ensure!(
            counted == (all, all * REUSING_JOBS as i64),
            "each file must be created once and reused by every other job: {counted:?}"
        );
        Ok((files as f64 / made, (files * REUSING_JOBS) as f64 / reused))
    }

    /// Megabytes per second of one large file, and additional megabytes of memory.
    async fn large(&self, bytes: usize) -> Result<(f64, f64)> {
        let before = memory_reset()?;
        let query = large(bytes);
        self.submit(1).await?;
        let seconds = self.work(&query, &self.stop.child_token()).await?;
        let path: String = sqlx::query_scalar(
            "select s3_path from exports.export_job_input where status = 'SUCCEEDED'",
        )
        .fetch_one(&self.pool)
        .await?;
        let key = self
            .store
            .key_from_url(&path)
            .context("not a key of this store")?;
        let size = self
            .store
            .head(&key)
            .await?
            .context("the file is missing")?
            .size;
        Ok((size as f64 / 1e6 / seconds, memory_peak()? - before))
    }

    /// Megabytes per second of psql's copy to disk.
    async fn psql(&self, bytes: usize) -> Result<f64> {
        let file = self.dir.join("psql.csv");
        let copy = format!(
            "\\copy ({}) to '{}' (format csv, header)",
            large(bytes),
            file.display()
        );
        let psql = limit::tool("psql").await;
        let started = Instant::now();
        let ran = tokio::process::Command::new(psql)
            .arg(&self.url)
            .args(["-q", "-c", &copy])
            .status()
            .await
            .context("psql")?;
        let seconds = started.elapsed().as_secs_f64();
        ensure!(ran.success(), "psql failed");
        let size = std::fs::metadata(&file)?.len();
        std::fs::remove_file(&file)?;
        Ok(size as f64 / 1e6 / seconds)
    }

    async fn submit(&self, inputs: usize) -> Result<()> {
        let request: JobRequest = serde_json::from_str(&request(inputs))?;
        self.exports
            .accept(&Submission::try_from(request)?, None)
            .await?;
        Ok(())
    }

    /// Seconds from the start of a worker until all jobs are completed.
    async fn work(&self, query: &str, stop: &CancellationToken) -> Result<f64> {
        let settings = settings(query)?;
        let breakers = Breakers::default();
        let stop = stop.child_token();
        let worker = worker::worker(
            self.pool.clone(),
            self.store.clone(),
            &settings,
            &breakers,
            settings.breaker.over(Default::default()),
        )?;
        let started = Instant::now();
        let running = tokio::spawn(worker.run(stop.clone()));
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let open: i64 = sqlx::query_scalar(
                "select count(*) from exports.export_job where completed_at is null",
            )
            .fetch_one(&self.pool)
            .await?;
            if open == 0 {
                break;
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        stop.cancel();
        running.await??;
        Ok(seconds)
    }
}

/// Marks the directory so that ext4 spreads its subdirectories over the disk. Without a journal, ext4 skips the inode of
/// every recently deleted file again for each new file nearby, which can cost more than the measured work.
fn spread_directories(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let _ = std::process::Command::new("chattr")
        .arg("+T")
        .arg(dir)
        .output();
    Ok(())
}

fn request(inputs: usize) -> String {
    let inputs: Vec<Value> = (0..inputs)
        .map(|n| json!({ "indexKey": format!("K{n:05}"), "effectiveDate": 20_240_202, "asofindicator": "CLS" }))
        .collect();
    json!({ "inputs": inputs }).to_string()
}

fn large(bytes: usize) -> String {
    format!("{LARGE_QUERY} from generate_series(1, {}) n", bytes / 100)
}

fn settings(query: &str) -> Result<Settings> {
    Ok(serde_json::from_value(json!({
        "concurrency": CONNECTIONS,
        "source": { "url": "", "query": query, "allow_empty": false },
        "worker": { "poll": { "batch_size": 500 }, "lease": { "seconds": 60 } },
        "retry": { "max_attempts": 5, "base_delay_ms": 1000 },
        "file": { "gzip": false, "reuse": { "enabled": true, "days": 7 } },
        "finalizer": { "interval_ms": 10_000 },
        "breaker": { "threshold": "", "open_for": "" },
    }))?)
}

/// Resets the memory peak of this process; returns its current megabytes.
fn memory_reset() -> Result<f64> {
    std::fs::write("/proc/self/clear_refs", "5")?;
    megabytes("VmRSS:")
}

/// The peak since the reset, in megabytes.
fn memory_peak() -> Result<f64> {
    megabytes("VmHWM:")
}

fn megabytes(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes: f64 = line
        .and_then(|line| line.split_whitespace().next())
        .context("memory")?
        .parse()?;
    Ok(kilobytes / 1000.0)
}
