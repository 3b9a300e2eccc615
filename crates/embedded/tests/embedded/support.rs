//! Directories, deadlines and connections for the tests.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postrider_embedded::{Options, Postgres};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};
use tempfile::TempDir;

pub const DEADLINE: Duration = Duration::from_secs(60);

/// A directory that the server's user can traverse, unlike a fresh temporary one under root.
pub fn open_dir() -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix("embedded-")
        .tempdir()
        .unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    dir
}

/// Options of a server without fsync.
pub fn quick(dir: &Path) -> Options {
    Options::new(dir).setting("fsync", "off")
}

pub async fn start(dir: &Path) -> Postgres {
    Postgres::start(quick(dir)).await.unwrap()
}

pub async fn connect(postgres: &Postgres) -> PgConnection {
    PgConnection::connect_with(&postgres.connect_options())
        .await
        .unwrap()
}

/// One value as text.
pub async fn ask(connection: &mut PgConnection, sql: &'static str) -> String {
    let row = sqlx::query(sql).fetch_one(connection).await.unwrap();
    row.get::<String, _>(0)
}

pub fn is_alive(pid: u32) -> bool {
    // A zombie doesn't count as alive.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let zombie = state.is_ok_and(|text| text.contains(") Z "));
    !zombie && kill(Pid::from_raw(pid.cast_signed()), None) != Err(Errno::ESRCH)
}

pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
