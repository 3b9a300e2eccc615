//! The benchmark: Postrider, its peers and PostgreSQL's own limit, side by side in one run.
//!
//! The promise: every figure comes from a run that handled each item exactly once, on one cluster, in interleaved
//! rounds; a run that lost or duplicated work yields no figure.
//!
//! Read [`plan`] (what and how much), [`peer`] and [`install`] (the systems), [`adapter`] (the protocol with them),
//! [`scenario`] (the measurements), [`targets`], [`table`] and [`chart`] (the output).

mod adapter;
mod chart;
mod cluster;
mod drain;
mod install;
mod limit;
mod load;
mod peer;
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

/// Kept between runs; not under version control.
const CACHE: &str = "bench/.cache";
/// The folder for results.
const RESULTS: &str = "bench/results";

/// The allocator of the program, because services run in this process.
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
        plan::log(&format!("preparing {}", peer.name));
        match install::install(&peer).await {
            Ok(program) => peers.push((peer, program)),
            Err(error) => {
                plan::log(&format!("{} is unavailable: {error:#}", peer.name));
                results.record_unavailable(peer.name, &format!("{error:#}"));
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
    let verdicts = targets::evaluate(&results);
    results.write(Path::new(RESULTS), &verdicts)?;
    chart::write(&results, Path::new(RESULTS))?;
    println!("{}", table::render(&results, &verdicts));
    println!("written: {RESULTS}/latest.json and {RESULTS}/latest.svg");
    Ok(())
}
