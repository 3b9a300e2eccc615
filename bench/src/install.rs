//! Downloads the peers and builds their adapters, in `bench/.cache` only.

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
    /// Arguments before the action.
    pub arguments: Vec<String>,
}

/// Builds a peer's adapter.
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
    let path = std::env::current_exe()?.with_file_name("bench-ours");
    if !path.exists() {
        bail!("{} is missing: build the whole package", path.display());
    }
    Ok(Program {
        path,
        arguments: Vec::new(),
    })
}

/// Builds all Rust peers at once: one by one, each would compile the common dependencies with other features.
async fn rust(peer: &Peer) -> Result<Program> {
    let target = absolute("target")?;
    let path = target
        .join("release")
        .join(format!("bench-peer-{}", peer.name));
    // A binary that exists afterwards is from this build.
    if path.exists() {
        std::fs::remove_file(&path)?;
    }
    let mut command = Command::new("cargo");
    command
        .args(["build", "--release", "--locked", "--quiet", "--keep-going"])
        .current_dir("bench/peers")
        .env("CARGO_TARGET_DIR", &target);
    let built = run_tool(command, "cargo").await;
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
        run_tool(command, "npm").await?;
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
    run_tool(command, "go").await?;
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

/// Runs a tool silently; its output becomes part of the error.
async fn run_tool(mut command: Command, tool: &str) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{tool} is not installed"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = stderr.lines().rev().take(5).collect();
    bail!(
        "{tool} failed: {}",
        last.into_iter().rev().collect::<Vec<_>>().join(" | ")
    );
}
