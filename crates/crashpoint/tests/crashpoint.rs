//! Armed points act as specified, and only in their own test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use postrider_crashpoint::{Injected, at, blocking_point, point, seen, seen_anywhere};

#[derive(Debug, PartialEq)]
struct Failed(&'static str);

impl From<Injected> for Failed {
    fn from(injected: Injected) -> Self {
        Self(injected.point())
    }
}

async fn step() -> Result<u32, Failed> {
    point!("test.step")?;
    Ok(7)
}

#[tokio::test]
async fn an_unarmed_point_only_counts() {
    assert_eq!(step().await, Ok(7));
    assert_eq!(step().await, Ok(7));
    assert_eq!(seen().get("test.step"), Some(&2));
    assert!(seen_anywhere()["test.step"] >= 2);
}

#[tokio::test]
async fn only_the_chosen_hit_fails() {
    let trap = at("test.step").on_hit(2).error();
    assert_eq!(step().await, Ok(7));
    assert_eq!(step().await, Err(Failed("test.step")));
    assert_eq!(step().await, Ok(7));
    assert_eq!((trap.hits(), trap.fired()), (3, 1));
}

#[tokio::test]
async fn dropping_the_trap_disarms_the_point() {
    let trap = at("test.step").on_every_hit().error();
    assert!(step().await.is_err());
    assert!(step().await.is_err());
    drop(trap);
    assert_eq!(step().await, Ok(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_point_is_armed_for_spawned_and_blocking_work_of_its_test_only() {
    let _trap = at("test.step").on_every_hit().error();
    assert!(tokio::spawn(step()).await.unwrap().is_err());
    let blocking = tokio::task::spawn_blocking(|| blocking_point!("test.step"));
    assert!(blocking.await.unwrap().is_err());
    // Another test is another runtime.
    let other = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(step())
    });
    assert_eq!(other.join().unwrap(), Ok(7));
}

#[tokio::test]
async fn an_armed_panic_panics() {
    let _trap = at("test.step").panic();
    let error = tokio::spawn(step()).await.unwrap_err();
    assert!(error.is_panic());
}

#[tokio::test]
async fn a_pause_lasts_until_released_and_blocks_no_other_task() {
    let trap = at("test.step").pause();
    let paused = tokio::spawn(step());
    trap.reached().await;
    // Other tasks on the same thread pass the same point meanwhile.
    assert_eq!(step().await, Ok(7));
    assert!(!paused.is_finished());
    trap.release();
    assert_eq!(paused.await.unwrap(), Ok(7));
}

#[tokio::test]
async fn a_stall_sleeps_without_blocking_the_thread() {
    let time = Duration::from_millis(300);
    let trap = at("test.step").stall(time);
    let begin = Instant::now();
    let stalled = tokio::spawn(step());
    trap.reached().await;
    assert_eq!(step().await, Ok(7));
    assert_eq!(stalled.await.unwrap(), Ok(7));
    assert!(begin.elapsed() >= time);
}

const CHILD: &str = "CRASHPOINT_TEST_CHILD";

/// Runs the test below in a child process with these plans.
fn child(plans: &str) -> std::process::Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "the_child", "--nocapture"])
        .env(CHILD, "yes")
        .env("POSTRIDER_CRASH", plans)
        .output()
        .unwrap()
}

#[tokio::test]
#[ignore = "the program that other tests start and kill"]
async fn the_child() {
    if std::env::var_os(CHILD).is_some() {
        for n in 1..=3 {
            let outcome = step().await;
            println!("step {n} {outcome:?}");
        }
    }
}

#[test]
fn a_child_process_is_killed_on_the_hit_named_in_its_environment() {
    let output = child("test.step=kill@3");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("step 2 Ok(7)"), "{said}");
    assert!(!said.contains("step 3"), "{said}");
    assert_eq!(output.status.signal(), Some(9));
}

#[test]
fn a_child_process_gets_errors_as_named_in_its_environment() {
    let output = child("other=kill,test.step=error@2");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("step 2 Err(Failed("), "{said}");
    assert!(said.contains("step 3 Ok(7)"), "{said}");
}

#[test]
fn an_invalid_plan_stops_the_program() {
    let output = child("test.step=explode");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("`test.step=explode` is not a crash plan"),
        "{said}"
    );
}
