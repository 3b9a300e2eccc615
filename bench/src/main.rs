//! The benchmark: Postrider, its peers and PostgreSQL's own limit, side by side in one run.
//!
//! The promise: every figure comes from a run that handled each of its items exactly once, on one
//! cluster, in interleaved rounds; a run that lost or doubled work prints no figure.
//!
//! Gauge order: [`plan`] (what and how much), [`peer`] and [`install`] (who), [`adapter`] (how
//! they are spoken to), [`scenario`] (what is measured), [`targets`], [`table`] and [`picture`]
//! (what is shown).

mod adapter;
mod cluster;
mod drain;
mod install;
mod limit;
mod load;
mod peer;
mod picture;
mod plan;
mod program;
mod results;
mod scenario;
mod table;
mod targets;

use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser;

use crate::cluster::Cluster;
use crate::plan::{Arguments, Plan};
use crate::results::Results;
use crate::scenario::Bench;

/// Everything that the benchmark keeps between runs; not under version control.
const CACHE: &str = "bench/.cache";
/// Where the results go.
const RESULTS: &str = "bench/results";

/// The services run in this process, and have the program's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> Result<()> {
    let plan = Plan::from(&Arguments::parse());
    std::fs::create_dir_all(CACHE)
        .context("create bench/.cache; run from the repository's root")?;
    std::fs::create_dir_all(RESULTS).context("create bench/results")?;
    std::fs::write(format!("{CACHE}/adapters.log"), "")?;
    let mut results = Results::new(&plan);
    let mut peers = Vec::new();
    for peer in plan.peers.clone() {
        plan::say(&format!("preparing {}", peer.name));
        match install::install(&peer).await {
            Ok(program) => peers.push((peer, program)),
            Err(error) => {
                plan::say(&format!("{} cannot be had: {error:#}", peer.name));
                results.absent(peer.name, &format!("{error:#}"));
            }
        }
    }
    let cluster = Cluster::start(Path::new(CACHE)).await?;
    results.server = cluster.describe().await?;
    let mut bench = Bench::new(cluster, peers, plan, results);
    let outcome = bench.run().await;
    let (cluster, results) = bench.finish();
    cluster.stop().await?;
    outcome?;
    let verdicts = targets::judge(&results);
    results.write(Path::new(RESULTS), &verdicts)?;
    picture::write(&results, Path::new(RESULTS))?;
    println!("{}", table::render(&results, &verdicts));
    println!("written: {RESULTS}/latest.json and {RESULTS}/latest.svg");
    Ok(())
}
