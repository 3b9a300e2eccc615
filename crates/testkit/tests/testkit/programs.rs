use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use postrider_testkit::{Program, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn shell(script: &str) -> Program {
    Program::start(
        Command::new("sh")
            .args(["-c", script])
            .env("GREETING", "hello"),
    )
}

#[tokio::test]
async fn output_and_exit_code_are_collected() {
    let mut program = shell("echo $GREETING; echo problem >&2; exit 3");
    assert_eq!(program.line_with("hell").await, "hello");
    assert_eq!(program.line_with("problem").await, "problem");
    assert_eq!(program.wait().await.code(), Some(3));
}

#[tokio::test]
async fn sigterm_can_be_handled_and_sigkill_cannot() {
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut polite = shell(script);
    polite.line_with("ready").await;
    assert_eq!(polite.terminate().await.code(), Some(7));
    let mut killed = shell(script);
    killed.line_with("ready").await;
    killed.kill().await;
    assert_eq!(killed.ended().unwrap().signal(), Some(9));
}

#[tokio::test]
async fn a_frozen_program_makes_no_progress_until_it_is_thawed() {
    let mut program = shell("while :; do echo tick; sleep 0.02; done");
    program.line_with("tick").await;
    program.freeze();
    let stat = format!("/proc/{}/stat", program.pid());
    eventually("it is stopped", async || {
        std::fs::read_to_string(&stat).unwrap().contains(") T ")
    })
    .await;
    program.thaw();
    let before = program.output().len();
    eventually("it ticks again", async || {
        program.output().len() > before + 2
    })
    .await;
}

#[tokio::test]
async fn a_dropped_program_is_killed() {
    let program = shell("echo ready; exec sleep 600");
    let process = format!("/proc/{}/stat", program.pid());
    drop(program);
    eventually("it is gone", async || {
        std::fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "))
    })
    .await;
}

#[tokio::test]
async fn readiness_over_http_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for status in ["503 Not Yet", "200 OK"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = stream.read(&mut [0; 1024]).await.unwrap();
            assert!(read > 0);
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut program = shell("exec sleep 600");
    program.http_ready(address, "/readyz").await;
}
