//! First starts, later starts, and failing starts.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use postrider_embedded::{Error, Options, Postgres, Presence, State, presence};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::support::{ask, connect, is_alive, open_dir, quick, start};

#[tokio::test]
async fn an_empty_directory_becomes_a_durable_private_server() {
    let dir = open_dir();
    let postgres = Postgres::start(Options::new(dir.path())).await.unwrap();
    let mut connection = connect(&postgres).await;
    for (sql, expected) in [
        ("SHOW fsync", "on"),
        ("SHOW synchronous_commit", "on"),
        ("SHOW full_page_writes", "on"),
        ("SHOW data_checksums", "on"),
        ("SHOW listen_addresses", ""),
        ("SHOW timezone", "UTC"),
        ("SHOW server_encoding", "UTF8"),
        (
            "SELECT datcollate FROM pg_database WHERE datname = current_database()",
            "C",
        ),
        ("SELECT current_database()::text", "postrider"),
        ("SELECT current_user::text", "postrider"),
    ] {
        assert_eq!(ask(&mut connection, sql).await, expected, "{sql}");
    }
    assert!(postgres.version().starts_with(|c: char| c.is_ascii_digit()));
    let home = dir.path().join("postgres");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home), 0o700);
    assert_eq!(mode(&home.join("run")), 0o700);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn data_survives_a_stop_and_a_start() {
    let dir = open_dir();
    let postgres = start(dir.path()).await;
    let pid = postgres.pid().unwrap();
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    sqlx::raw_sql("CREATE TABLE kept AS SELECT 'here' AS it")
        .execute(&mut connection)
        .await
        .unwrap();
    let state = postgres.state();
    postgres.stop().await.unwrap();
    assert!(!is_alive(pid));
    assert_eq!(*state.borrow(), State::Stopped);
    let postgres = start(dir.path()).await;
    let mut connection = connect(&postgres).await;
    assert_eq!(ask(&mut connection, "SELECT it FROM kept").await, "here");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_path_with_spaces_and_commas_works() {
    let dir = open_dir();
    let long = dir.path().join(format!("a, \"b\" {}", "x".repeat(100)));
    let postgres = start(&long).await;
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    assert_eq!(ask(&mut connection, "SELECT 'yes'").await, "yes");
    postgres.stop().await.unwrap();
    postrider_embedded::remove(&long).await.unwrap();
    assert_eq!(std::fs::read_dir(&long).unwrap().count(), 0);
}

#[tokio::test]
async fn an_unfinished_cluster_is_deleted_and_created_again() {
    let dir = open_dir();
    // Left by a crash during initdb.
    let half = dir.path().join("postgres/data.new-1");
    std::fs::create_dir_all(half.join("base")).unwrap();
    std::fs::write(half.join("PG_VERSION"), "15\n").unwrap();
    let postgres = match Postgres::start(quick(dir.path())).await {
        Ok(postgres) => postgres,
        Err(error) => panic!("{error}"),
    };
    assert!(!half.exists());
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_failed_initdb_is_explained_and_the_next_start_succeeds() {
    let dir = open_dir();
    let programs = FakePrograms::new("echo 'could not write: No space left on device' >&2; exit 1");
    let mut options = quick(dir.path());
    options.bin_dir = Some(programs.path());
    let text = Postgres::start(options).await.unwrap_err().to_string();
    assert!(text.contains("No space left on device"), "{text}");
    start(dir.path()).await.stop().await.unwrap();
}

#[tokio::test]
async fn a_cluster_of_another_version_is_refused_and_left_alone() {
    let dir = open_dir();
    start(dir.path()).await.stop().await.unwrap();
    let programs = FakePrograms::new("exit 1");
    let mut options = quick(dir.path());
    options.bin_dir = Some(programs.path());
    let error = Postgres::start(options).await.unwrap_err();
    assert!(matches!(error, Error::VersionMismatch { .. }), "{error}");
    assert!(
        error.to_string().contains("only 99.1 is installed"),
        "{error}"
    );
}

#[tokio::test]
async fn a_bin_dir_without_binaries_is_reported() {
    let dir = open_dir();
    let mut options = quick(dir.path());
    options.bin_dir = Some(PathBuf::from("/nonexistent"));
    let error = Postgres::start(options).await.unwrap_err();
    assert!(matches!(error, Error::NotInBinDir { .. }), "{error}");
}

#[tokio::test]
async fn the_log_of_a_server_that_fails_to_start_is_reported() {
    let dir = open_dir();
    let options = quick(dir.path()).setting("max_connections", "plenty");
    let error = Postgres::start(options).await.unwrap_err();
    assert!(matches!(error, Error::Exited { .. }), "{error}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    start(dir.path()).await.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_program_is_refused_with_the_holders_pid() {
    let dir = open_dir();
    let postgres = start(dir.path()).await;
    let error = Postgres::start(quick(dir.path())).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::InUse { .. }), "{text}");
    let own = format!("in use by process {}", std::process::id());
    assert!(text.contains(&own), "{text}");
    postgres.stop().await.unwrap();
    start(dir.path()).await.stop().await.unwrap();
}

/// Programs that claim to be PostgreSQL 99.
struct FakePrograms(tempfile::TempDir);

impl FakePrograms {
    fn new(initdb: &str) -> Self {
        let dir = open_dir();
        for (name, body) in [
            ("postgres", "echo 'postgres (PostgreSQL) 99.1'"),
            ("initdb", initdb),
        ] {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

#[tokio::test]
async fn presence_reports_the_state_and_changes_nothing() {
    let dir = open_dir();
    assert!(matches!(presence(dir.path()), Ok(Presence::Absent)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let postgres = start(dir.path()).await;
    let Ok(Presence::Running(options)) = presence(dir.path()) else {
        panic!("the server runs");
    };
    let mut guest = PgConnection::connect_with(&options).await.unwrap();
    assert_eq!(ask(&mut guest, "SELECT 'yes'").await, "yes");
    drop(guest);
    postgres.stop().await.unwrap();
    assert!(matches!(presence(dir.path()), Ok(Presence::Stopped)));
}
