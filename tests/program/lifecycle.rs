//! Start, stop, crash and restart.

use nix::sys::signal::Signal;
use postrider_testkit::{TestDb, eventually, process::Program};

use crate::program::{Serving, data_dir, postrider, run_with, stderr};

/// Processes whose command line contains this directory: the embedded server, if it is running.
fn processes_of(dir: &std::path::Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        if command.contains("postgres") && command.contains(dir.to_str().unwrap()) {
            found.push(pid);
        }
    }
    found
}

#[tokio::test]
async fn server_starts_in_an_empty_directory_and_sigterm_stops_it_cleanly() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    assert_eq!(serving.json("/readyz").await["status"], "ready");
    assert_eq!(serving.json("/healthz").await["status"], "ok");
    assert!(!processes_of(dir.path()).is_empty());
    assert!(serving.terminate().await.success());
    assert_eq!(
        processes_of(dir.path()),
        Vec::<u32>::new(),
        "the database server ended with the program"
    );
}

#[tokio::test]
async fn server_restarts_unattended_after_ten_kills_in_a_row() {
    let dir = data_dir();
    for round in 0..10 {
        let serving = Serving::on(dir.path(), &[]).await;
        assert_eq!(
            serving.json("/readyz").await["status"],
            "ready",
            "round {round}"
        );
        serving.kill().await;
    }
    let serving = Serving::on(dir.path(), &[]).await;
    assert_eq!(serving.json("/readyz").await["status"], "ready");
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn database_server_stops_when_the_program_is_killed() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    serving.kill().await;
    eventually("the database server is gone", async || {
        let left = processes_of(dir.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test]
async fn database_server_that_dies_is_restarted_by_the_running_program() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let pid = processes_of(dir.path())
        .into_iter()
        .min()
        .expect("a server runs");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid.try_into().unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    eventually("another server runs and the program is ready", async || {
        let now = processes_of(dir.path());
        let ready = serving.json("/readyz").await["status"] == "ready";
        if ready && !now.is_empty() && !now.contains(&pid) {
            Ok(())
        } else {
            Err(now)
        }
    })
    .await;
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn second_program_on_the_same_directory_is_rejected_without_harm() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let second = run_with(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        dir.path().to_str().unwrap(),
    ])
    .await;
    assert_eq!(second.status.code(), Some(4));
    assert!(stderr(&second).contains("in use"), "{}", stderr(&second));
    assert_eq!(serving.json("/readyz").await["status"], "ready");
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn ordinary_user_can_run_the_server() {
    if !nix::unistd::geteuid().is_root() {
        return; // every other test of this file has just shown it
    }
    let dir = data_dir();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    // The binary must be readable for that user, wherever it was built.
    let binary = dir.path().join("postrider");
    std::fs::copy(postrider(&[]).get_program(), &binary).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&binary)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path().join("data"))
        .env("HOME", dir.path())
        .current_dir(dir.path());
    let serving = Serving::start(&command).await;
    assert_eq!(serving.json("/readyz").await["status"], "ready");
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn no_embedded_server_is_started_with_a_database_url() {
    let db = TestDb::new().await;
    let dir = data_dir();
    let unused = dir.path().join("unused");
    let serving = Serving::on(&unused, &["--database-url", &db.url()]).await;
    assert_eq!(serving.json("/readyz").await["status"], "ready");
    assert!(serving.terminate().await.success());
    let written: Vec<_> = std::fs::read_dir(&unused)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(written, ["store"], "no database was made");
}

#[tokio::test]
async fn stop_during_startup_leaves_nothing_running() {
    let dir = data_dir();
    let path = dir.path().to_str().unwrap();
    let mut program = Program::start(&postrider(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        path,
    ]));
    // The lock file is the first thing that appears: the database is about to be made.
    eventually("the start has begun", async || {
        std::fs::read_dir(path).unwrap().next()
    })
    .await
    .unwrap();
    program.terminate().await;
    eventually("nothing is left", async || {
        processes_of(dir.path()).is_empty()
    })
    .await;
}
