//! After any crash, nothing is lost and no manual help is needed.

use std::time::Duration;

use nix::sys::signal::Signal;
use postrider_embedded::{Postgres, State};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

use crate::program::Program;
use crate::support::{ask, connect, is_alive, open_dir, signal, start, until};

#[tokio::test]
async fn killing_the_program_ten_times_loses_no_commit() {
    let dir = open_dir();
    for round in 0..10_i32 {
        let program = Program::start(dir.path()).unwrap();
        let mut connection = PgConnection::connect(&program.url).await.unwrap();
        sqlx::raw_sql("CREATE TABLE IF NOT EXISTS round (n int PRIMARY KEY)")
            .execute(&mut connection)
            .await
            .unwrap();
        sqlx::query("INSERT INTO round VALUES ($1)")
            .bind(round)
            .execute(&mut connection)
            .await
            .unwrap();
        if round % 2 == 1 {
            // Both at once, so the server can't shut down cleanly either.
            signal(program.server, Signal::SIGKILL);
        }
        program.kill();
    }
    let postgres = start(dir.path()).await;
    let mut connection = connect(&postgres).await;
    let rounds = ask(&mut connection, "SELECT count(*)::text FROM round").await;
    assert_eq!(rounds, "10");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_ends_when_the_program_is_killed() {
    let dir = open_dir();
    let program = Program::start(dir.path()).unwrap();
    let server = program.server;
    program.kill();
    until("the server has ended", async || !is_alive(server)).await;
}

#[tokio::test]
async fn a_dropped_handle_ends_the_server() {
    let dir = open_dir();
    let postgres = start(dir.path()).await;
    let server = postgres.pid().unwrap();
    drop(postgres);
    until("the server has ended", async || !is_alive(server)).await;
}

#[tokio::test]
async fn a_cancelled_start_leaves_no_server() {
    let dir = open_dir();
    start(dir.path()).await.stop().await.unwrap();
    let starting = Postgres::start(crate::support::quick(dir.path()));
    let given_up = tokio::time::timeout(Duration::from_millis(30), starting).await;
    drop(given_up);
    // The directory is free once the abandoned server has ended.
    until(
        "the directory is free again",
        async || match Postgres::start(crate::support::quick(dir.path())).await {
            Ok(postgres) => {
                postgres.stop().await.unwrap();
                true
            }
            Err(postrider_embedded::Error::InUse { .. }) => false,
            Err(error) => panic!("{error}"),
        },
    )
    .await;
}

#[tokio::test]
async fn a_killed_server_is_restarted_with_all_commits() {
    let dir = open_dir();
    let postgres = start(dir.path()).await;
    let mut connection = connect(&postgres).await;
    sqlx::raw_sql("CREATE TABLE kept AS SELECT 'here' AS it")
        .execute(&mut connection)
        .await
        .unwrap();
    // A child that is busy when its parent dies keeps the shared memory for a while.
    let mut busy = connect(&postgres).await;
    let work = tokio::spawn(async move {
        sqlx::raw_sql("SELECT count(*) FROM generate_series(1, 200000000)")
            .execute(&mut busy)
            .await
    });
    until("the long query runs", async || {
        let running = "SELECT count(*)::text FROM pg_stat_activity \
                       WHERE state = 'active' AND query LIKE '%generate_series(1, 2%' \
                       AND pid <> pg_backend_pid()";
        ask(&mut connection, running).await == "1"
    })
    .await;
    let first = postgres.pid().unwrap();
    signal(first, Signal::SIGKILL);
    let mut state = postgres.state();
    let back = state.wait_for(|state| matches!(state, State::Running { pid } if *pid != first));
    tokio::time::timeout(crate::support::DEADLINE, back)
        .await
        .unwrap()
        .unwrap();
    assert!(work.await.unwrap().is_err());
    let mut connection = connect(&postgres).await;
    assert_eq!(ask(&mut connection, "SELECT it FROM kept").await, "here");
    until("the restart is counted", async || postgres.restarts() == 1).await;
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_backend_recovers_within_the_same_server() {
    let dir = open_dir();
    let postgres = start(dir.path()).await;
    let mut connection = connect(&postgres).await;
    let row = sqlx::query("SELECT pg_backend_pid()")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let before = postgres.pid();
    signal(row.get::<i32, _>(0).cast_unsigned(), Signal::SIGKILL);
    until("the old connection has failed", async || {
        sqlx::query("SELECT 1")
            .execute(&mut connection)
            .await
            .is_err()
    })
    .await;
    until("new connections work", async || {
        PgConnection::connect_with(&postgres.connect_options())
            .await
            .is_ok()
    })
    .await;
    assert_eq!(postgres.pid(), before);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_stale_pid_file_of_an_unrelated_process_is_removed() {
    let dir = open_dir();
    start(dir.path()).await.stop().await.unwrap();
    // A live process of the server's user that isn't PostgreSQL.
    let cluster = dir.path().join("postgres/data");
    let owner = std::os::unix::fs::MetadataExt::uid(&cluster.metadata().unwrap());
    let mut stranger = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::uid(&mut stranger, owner);
    let mut stranger = stranger.arg("600").spawn().unwrap();
    let pid_file = cluster.join("postmaster.pid");
    let contents = format!(
        "{}\n{}\n1700000000\n5432\n",
        stranger.id(),
        cluster.display()
    );
    std::fs::write(&pid_file, contents).unwrap();
    std::fs::write(dir.path().join("postgres/run/.s.PGSQL.5432"), "").unwrap();
    std::os::unix::fs::chown(&pid_file, Some(owner), None).unwrap();
    let postgres = start(dir.path()).await;
    assert!(is_alive(stranger.id()), "a stranger was killed");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    postgres.stop().await.unwrap();
}
