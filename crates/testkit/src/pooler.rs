//! A real PgBouncer between a test and its database.

use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use crate::servers::{free_port, log_once};
use crate::{Program, TestDb, eventually};

/// Debian installs it outside the usual PATH.
const PROGRAMS: [&str; 3] = [
    "pgbouncer",
    "/usr/sbin/pgbouncer",
    "/usr/local/bin/pgbouncer",
];

/// Pool mode: when a server session goes to the next client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// When the client disconnects.
    Session,
    /// After each transaction.
    Transaction,
}

/// A pooler in front of one database; ends when dropped.
#[derive(Debug)]
pub struct Pooler {
    url: String,
    _program: Program,
    _dir: tempfile::TempDir,
}

impl Pooler {
    /// Starts PgBouncer; `None`, with a printed skip, if it isn't installed. With `CI` set, that is a failure.
    pub async fn start(db: &TestDb, mode: Mode) -> Option<Self> {
        let Some((program, version)) = installed() else {
            let ci = std::env::var_os("CI").is_some();
            assert!(!ci, "PgBouncer is missing; scripts/setup installs it");
            log_once("SKIPPED without PgBouncer");
            return None;
        };
        let options = db.connect_options();
        let server = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => options.get_host().to_owned(),
        };
        let dir = tempfile::tempdir().expect("a directory for PgBouncer");
        let port = free_port();
        let mode = match mode {
            Mode::Session => "session",
            Mode::Transaction => "transaction",
        };
        let user = match options.get_socket().map(std::fs::metadata) {
            // It refuses to run as root; the server's user may use the server's socket.
            Some(Ok(socket)) if nix::unistd::geteuid().is_root() => owner(socket.uid()),
            _ => String::new(),
        };
        let settings = format!(
            "[databases]
* = host={server} port={} user={}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 100
{user}",
            options.get_port(),
            options.get_username(),
        );
        let file = dir.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("write PgBouncer's settings");
        open(&dir);
        let mut command = Command::new(program);
        command.arg("--quiet").arg(&file);
        let mut running = Program::start(&command);
        eventually("PgBouncer listens", async || {
            match (
                TcpStream::connect((Ipv4Addr::LOCALHOST, port)),
                running.ended(),
            ) {
                (Ok(_), None) => Ok(()),
                _ => Err(running.output()),
            }
        })
        .await;
        log_once(&format!("tests run against {version}"));
        Some(Self {
            url: format!(
                "postgres://anybody@127.0.0.1:{port}/{}?sslmode=disable",
                db.name()
            ),
            _program: running,
            _dir: dir,
        })
    }

    /// Where clients connect.
    pub fn url(&self) -> &str {
        &self.url
    }
}

fn installed() -> Option<(&'static str, String)> {
    PROGRAMS.into_iter().find_map(|program| {
        let answer = Command::new(program).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        Some((program, text.lines().next()?.to_owned()))
    })
}

fn owner(uid: u32) -> String {
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    user.map_or_else(String::new, |user| format!("user = {}\n", user.name))
}

/// Its user must be able to read its settings.
fn open(dir: &tempfile::TempDir) {
    use std::os::unix::fs::PermissionsExt as _;
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), everybody).expect("open PgBouncer's directory");
}
