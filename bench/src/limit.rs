//! What PostgreSQL itself can do here: pgbench's single-row commits, and COPY.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sqlx::Connection;
use tokio::process::Command;

use crate::CACHE;
use crate::cluster::Cluster;
use crate::results::{LIMIT, PREPARED, Results};

/// The database of the limit.
const DATABASE: &str = "bench_limit";
/// As narrow as a queue's row can be: an id and a tiny payload.
const TABLE: &str = "create table item (id bigint generated always as identity primary key, payload jsonb not null)";
const SCRIPT: &str = "insert into item (payload) values ('{\"n\":1234}');\n";
/// Rows of one COPY.
const COPIED: usize = 10_000;

/// Notes pgbench's commits of one row a second with so many clients: as it comes, which is the limit, and beside it with
/// statements that are parsed and planned once.
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
        results.note(measure, "items/s", name, &settings, rate);
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
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "pgbench failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let line = said
        .lines()
        .find(|line| line.starts_with("tps = "))
        .context("pgbench names its rate")?;
    line.split_whitespace()
        .nth(2)
        .and_then(|rate| rate.parse().ok())
        .context("pgbench's rate is a number")
}

/// The tool that belongs to the server, or whichever there is of this name.
pub async fn tool(name: &str) -> PathBuf {
    let found = postrider_embedded::installations().await;
    let beside = found.first().map(|found| found.bin_dir.join(name));
    beside
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(name))
}

/// Rows a second by COPY of 10,000.
pub async fn copy(cluster: &Cluster, items: u64) -> Result<f64> {
    prepare(cluster).await?;
    let rows: String = (0..COPIED).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let times = (items as usize / COPIED).max(1);
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
    Ok((times * COPIED) as f64 / took)
}

async fn prepare(cluster: &Cluster) -> Result<()> {
    cluster.fresh(DATABASE, None).await?;
    let mut connection = cluster.connect(DATABASE).await?;
    sqlx::query(TABLE).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}
