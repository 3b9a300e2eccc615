//! Gets the peers from their registries and builds their adapters, into `bench/.cache` only.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::CACHE;
use crate::peer::{Kind, Peer};

/// How to start an adapter: program and first arguments.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// What comes before the action.
    pub arguments: Vec<String>,
}

/// Makes a peer's adapter ready to run.
pub async fn install(peer: &Peer) -> Result<Program> {
    match peer.kind {
        Kind::Ours => ours(),
        Kind::Rust => rust(peer).await,
        Kind::Node => node(peer).await,
        Kind::Go => go(peer).await,
    }
}

/// Built together with the harness.
fn ours() -> Result<Program> {
    let beside = std::env::current_exe()?.with_file_name("bench-ours");
    if !beside.exists() {
        bail!("{} is missing: build the whole package", beside.display());
    }
    Ok(Program {
        path: beside,
        arguments: Vec::new(),
    })
}

/// All of them in one build: built one by one, each would want other features of their common
/// dependencies, and nearly everything would be compiled once for each.
async fn rust(peer: &Peer) -> Result<Program> {
    let target = absolute("target")?;
    let path = target
        .join("release")
        .join(format!("bench-peer-{}", peer.name));
    // What is there afterwards was built from what is here now.
    if path.exists() {
        std::fs::remove_file(&path)?;
    }
    let mut command = Command::new("cargo");
    command
        .args(["build", "--release", "--locked", "--quiet", "--keep-going"])
        .current_dir("bench/peers")
        .env("CARGO_TARGET_DIR", &target);
    let built = quiet(command, "cargo").await;
    if !path.exists() {
        built?;
        bail!("cargo built no {}", path.display());
    }
    Ok(Program {
        path,
        arguments: Vec::new(),
    })
}

async fn node(peer: &Peer) -> Result<Program> {
    let source = Path::new("bench/peers").join(peer.name);
    let home = absolute("node")?.join(peer.name);
    std::fs::create_dir_all(&home)?;
    let lock = "package-lock.json";
    let same = std::fs::read(source.join(lock)).ok() == std::fs::read(home.join(lock)).ok();
    for name in ["package.json", lock, "main.mjs"] {
        std::fs::copy(source.join(name), home.join(name))
            .with_context(|| format!("copy {name}"))?;
    }
    std::fs::copy("bench/peers/kit.mjs", absolute("node")?.join("kit.mjs"))?;
    if !same || !home.join("node_modules").exists() {
        let mut command = Command::new("npm");
        command
            .args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
            .current_dir(&home);
        quiet(command, "npm").await?;
    }
    Ok(Program {
        path: PathBuf::from("node"),
        arguments: vec![home.join("main.mjs").to_string_lossy().into_owned()],
    })
}

async fn go(peer: &Peer) -> Result<Program> {
    let program = absolute("bin")?.join(peer.name);
    let mut command = Command::new("go");
    command
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(Path::new("bench/peers").join(peer.name));
    quiet(command, "go").await?;
    Ok(Program {
        path: program,
        arguments: Vec::new(),
    })
}

fn absolute(name: &str) -> Result<PathBuf> {
    let path = std::path::absolute(Path::new(CACHE).join(name))?;
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

/// Runs a tool without its chatter; what it said is part of the error.
async fn quiet(mut command: Command, tool: &str) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{tool} is not installed"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(5).collect();
    bail!(
        "{tool} failed: {}",
        last.into_iter().rev().collect::<Vec<_>>().join(" | ")
    );
}
