//! The demo keeps its promises and leaves nothing behind.

use std::{net::TcpListener, path::Path, process::Command, time::Duration};

use nix::sys::signal::Signal;
use postrider_testkit::{eventually, process::Program, wait::within};
use serde_json::Value;

use crate::program::{Serving, data_dir, postrider, run, run_with, stderr, stdout};

/// Time for a whole demo on a loaded machine.
const DEMO_TIMEOUT: Duration = Duration::from_secs(400);

/// The demo with these arguments and this directory for temporary files.
fn demo(args: &[&str], temporary: &Path) -> Command {
    let mut command = postrider(&["demo"]);
    command.args(args).env("TMPDIR", temporary);
    command
}

/// Runs it to its end, which takes longer than other commands.
async fn whole(command: Command) -> std::process::Output {
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output();
    tokio::time::timeout(DEMO_TIMEOUT, output)
        .await
        .expect("the demo ends by itself")
        .unwrap()
}

/// Waits for a line, as long as a whole demo may take.
async fn line(program: &mut Program, text: &str) -> String {
    within(DEMO_TIMEOUT, &format!("a line with {text:?}"), async || {
        let lines = program.output();
        let found = lines.iter().find(|line| line.contains(text)).cloned();
        assert!(
            found.is_some() || program.ended().is_none(),
            "it has ended: {lines:#?}"
        );
        found
    })
    .await
}

/// The processes that it reports as started.
fn processes(program: &Program) -> Vec<u32> {
    let lines = program.output();
    let number = |line: &String| line.split_once("process ")?.1.trim().parse().ok();
    lines.iter().filter_map(number).collect()
}

async fn are_gone(processes: &[u32]) {
    for pid in processes {
        eventually("its processes are gone", async || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            // A zombie counts as ended.
            !status.is_ok_and(|status| !status.contains("State:\tZ"))
        })
        .await;
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[tokio::test]
async fn demo_ends_by_itself_with_every_promise_kept() {
    let temporary = data_dir();
    let words = ["--json", "--seconds", "8", "--listen", "127.0.0.1:0"];
    let output = whole(demo(&words, temporary.path())).await;
    assert!(output.status.success(), "{}", stderr(&output));
    let last: Value = serde_json::from_str(stdout(&output).lines().last().unwrap()).unwrap();
    assert_eq!(last["done"], last["accepted"], "{last}");
    for none in ["lost", "done_twice", "still_dead"] {
        assert_eq!(last[none], 0, "{none}: {last}");
    }
    for shown in ["accepted", "retried", "recovered", "dead"] {
        let seen = last[shown].as_i64().unwrap();
        assert!(seen > 0, "{shown} must be seen to happen: {last}");
    }
    let services = last["services"].as_object().unwrap();
    let all = ["evidence", "exports", "orders", "payments", "protocols"];
    assert!(services.keys().eq(all), "{last}");
    for (name, tally) in services {
        assert!(
            tally["accepted"].as_i64().unwrap() > 0 && tally["done"] == tally["accepted"],
            "{name}: {tally}"
        );
    }
    assert!(
        is_empty(temporary.path()),
        "temporary files were left behind"
    );
}

#[tokio::test]
async fn demo_with_keep_serves_until_interrupted() {
    let (dir, temporary) = (data_dir(), data_dir());
    // Whether this succeeds or not, the default port is now in use.
    let _usual = TcpListener::bind("127.0.0.1:8080");
    let place = dir.path().to_str().unwrap();
    let words = ["--keep", "--seconds", "5", "--data-dir", place];
    let mut program = Program::start(&demo(&words, temporary.path()));
    let staying = line(&mut program, "until interrupted: ").await;
    let (_, address) = staying.split_once("interrupted: ").unwrap();
    assert!(!address.contains(":8080"), "{address}");
    // reqwest needs a process-wide TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let console = reqwest::get(address.trim()).await.unwrap();
    assert_eq!(console.status(), 200, "{address}");
    let page = console.text().await.unwrap();
    assert!(page.contains("<html"), "{page}");
    let orders = reqwest::get(format!("{}do/order", address.trim())).await;
    let orders: Value = orders.unwrap().json().await.unwrap();
    assert_eq!(orders["items"][0]["status"], "succeeded", "{orders}");
    let text = program.output().join("\n");
    for shown in [
        "kill -9 of worker",
        "kill -9 of the database server",
        "UNKNOWN_SYMBOL",
        "redriven",
        "accepted  done",
    ] {
        assert!(text.contains(shown), "{shown} is not to be seen: {text}");
    }
    program.signal(Signal::SIGINT);
    assert_eq!(program.wait().await.code(), Some(0));
    are_gone(&processes(&program)).await;
    assert!(dir.path().join("store/exports").exists());
    assert!(
        is_empty(temporary.path()),
        "temporary files were left behind"
    );
}

#[tokio::test]
async fn interrupted_demo_stops_all_its_processes() {
    let temporary = data_dir();
    let words = ["--seconds", "600", "--listen", "127.0.0.1:0"];
    let mut program = Program::start(&demo(&words, temporary.path()));
    line(&mut program, "submitting").await;
    let processes = processes(&program);
    assert_eq!(processes.len(), 2, "{:#?}", program.output());
    program.signal(Signal::SIGINT);
    assert_eq!(program.wait().await.code(), Some(1));
    are_gone(&processes).await;
    assert!(
        is_empty(temporary.path()),
        "temporary files were left behind"
    );
}

#[tokio::test]
async fn processes_of_a_killed_demo_end_by_themselves() {
    let temporary = data_dir();
    let words = ["--seconds", "600", "--listen", "127.0.0.1:0"];
    let mut program = Program::start(&demo(&words, temporary.path()));
    line(&mut program, "submitting").await;
    let processes = processes(&program);
    program.kill().await;
    are_gone(&processes).await;
}

#[tokio::test]
async fn demo_rejects_a_directory_with_other_data() {
    let dir = data_dir();
    Serving::on(dir.path(), &[]).await.terminate().await;
    let place = dir.path().to_str().unwrap();
    let output = run(postrider(&["demo", "--data-dir", place])).await;
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("does not belong to a demo"),
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn server_can_be_tied_to_its_standard_input() {
    let dir = data_dir();
    let place = dir.path().to_str().unwrap();
    let words = [
        "serve",
        "--until-stdin-ends",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        place,
    ];
    let output = run_with(&words).await;
    assert!(output.status.success(), "{}", stderr(&output));
}
