//! The limits of PostgreSQL itself: single-row commits with pgbench, and COPY.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sqlx::Connection;
use tokio::process::Command;

use crate::CACHE;
use crate::cluster::Cluster;
use crate::results::{LIMIT, PREPARED, Results};

/// The database for the limits.
const DATABASE: &str = "bench_limit";
/// A minimal queue table: an id and a tiny payload.
const TABLE: &str = "create table item (id bigint generated always as identity primary key, payload jsonb not null)";
const SCRIPT: &str = "insert into item (payload) values ('{\"n\":1234}');\n";
/// Rows per COPY.
const COPY_ROWS: usize = 10_000;

/// Records the rate of pgbench's single-row commits: with its default protocol, which is the limit, and with prepared
/// statements.
pub async fn singles(
    cluster: &Cluster,
    results: &mut Results,
    measure: &str,
    clients: usize,
    items: u64,
) -> Result<()> {
    for (name, protocol) in [(LIMIT, "simple"), (PREPARED, "prepared")] {
        let rate = pgbench(cluster, protocol, clients, items).await?;
        let settings = format!("pgbench --protocol={protocol}");
        results.record(measure, "items/s", name, &settings, rate);
    }
    Ok(())
}

async fn pgbench(cluster: &Cluster, protocol: &str, clients: usize, items: u64) -> Result<f64> {
    prepare(cluster).await?;

    let script = format!("{CACHE}/insert.sql");
    std::fs::write(&script, SCRIPT)?;
    let (socket, role) = cluster.address()?;
    let each = (items / clients as u64).max(1);
    let output = Command::new(tool("pgbench").await)
        .args(["--no-vacuum", "--jobs=2"])
        .arg(format!("--protocol={protocol}"))
        .args(["-h", &socket, "-U", role])
        .arg(format!("--client={clients}"))
        .arg(format!("--transactions={each}"))
        .args(["-f", &script, DATABASE])
        .output()
        .await
        .context("pgbench is not installed")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "pgbench failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let line = stdout
        .lines()
        .find(|line| line.starts_with("tps = "))
        .context("pgbench printed no rate")?;
    line.split_whitespace()
        .nth(2)
        .and_then(|rate| rate.parse().ok())
        .context("pgbench's rate is not a number")
}

/// The tool next to the server, or the one in the search path.
pub async fn tool(name: &str) -> PathBuf {
    let found = postrider_embedded::installations().await;
    let bundled = found.first().map(|found| found.bin_dir.join(name));
    bundled
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(name))
}

/// Rows per second with COPY of 10,000 rows.
pub async fn copy(cluster: &Cluster, items: u64) -> Result<f64> {
    prepare(cluster).await?;
    let rows: String = (0..COPY_ROWS).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let times = (items as usize / COPY_ROWS).max(1);
    let mut connection = cluster.connect(DATABASE).await?;
    let begun = Instant::now();
    for _ in 0..times {
        let mut copy = connection
            .copy_in_raw("copy item (payload) from stdin")
            .await?;
        copy.send(rows.as_bytes()).await?;
        copy.finish().await?;
    }
    let took = begun.elapsed().as_secs_f64();
    connection.close().await?;
    Ok((times * COPY_ROWS) as f64 / took)
}

async fn prepare(cluster: &Cluster) -> Result<()> {
    cluster.create_database(DATABASE, None).await?;
    let mut connection = cluster.connect(DATABASE).await?;
    sqlx::query(TABLE).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}
