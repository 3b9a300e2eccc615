//! As root and as an unprivileged user.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nix::unistd::geteuid;
use postrider_embedded::{Error, Postgres};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::program::Program;
use crate::support::{ask, open_dir, quick, start};

const NOBODY: u32 = 65534;

#[tokio::test]
async fn the_server_never_runs_as_root() {
    let dir = open_dir();
    let postgres = start(dir.path()).await;
    let process = format!("/proc/{}", postgres.pid().unwrap());
    assert_ne!(std::fs::metadata(process).unwrap().uid(), 0);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn an_unprivileged_user_can_run_the_server() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can become another user; the other tests run as this one");
        return;
    }
    let dir = open_dir();
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let program = Program::start_as(NOBODY, dir.path()).unwrap();
    let process = format!("/proc/{}", program.server);
    assert_eq!(std::fs::metadata(process).unwrap().uid(), NOBODY);
    let mut connection = PgConnection::connect(&program.url).await.unwrap();
    assert_eq!(ask(&mut connection, "SELECT 'yes'").await, "yes");
    drop(connection);
    program.stop();
    // Root may use the directory; the server keeps its user.
    let postgres = start(&dir.path().join("data")).await;
    let process = format!("/proc/{}", postgres.pid().unwrap());
    assert_eq!(std::fs::metadata(process).unwrap().uid(), NOBODY);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn an_untraversable_parent_is_reported_before_anything_is_created() {
    if !geteuid().is_root() {
        eprintln!("skipped: an ordinary user's server can go wherever the user can");
        return;
    }
    let dir = open_dir();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = Postgres::start(quick(&dir.path().join("data")))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Untraversable { .. }), "{error}");
    let advice = format!("chmod o+x {}", dir.path().display());
    assert!(error.to_string().contains(&advice), "{error}");
    assert!(!dir.path().join("data/postgres").exists());
}
