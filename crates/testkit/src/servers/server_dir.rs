//! Directory and ports of a server.

use std::fs::Permissions;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};

/// Below the ephemeral range, so that the port of a stopped server stays free.
const PORTS: std::ops::Range<u16> = 18_000..32_000;

/// Data directory of a server.
#[derive(Debug, Clone)]
pub(super) struct ServerDir {
    dir: PathBuf,
}

impl ServerDir {
    /// Creates a directory; removes those of dead processes.
    pub fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("postrider-brokers-{}", geteuid()));
        std::fs::create_dir_all(&root).expect("a directory for brokers");
        std::fs::set_permissions(&root, Permissions::from_mode(0o700))
            .expect("a private directory");
        sweep(&root);
        let unique = uuid::Uuid::new_v4().as_u64_pair().0;
        let dir = root.join(format!("{}-{name}-{unique:x}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory for a broker");
        Self { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir.join(name);
        std::fs::write(&path, text).expect("write a broker's file");
        path.display().to_string()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

/// Directory names begin with the id of the process that created them.
fn sweep(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().and_then(|pid| pid.parse().ok());
        if owner.is_some_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)) {
            // Another process may be removing it, too.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    let span = u64::from(PORTS.end - PORTS.start);
    for _ in 0..1000 {
        let random = uuid::Uuid::new_v4().as_u64_pair().0 % span;
        let port = PORTS.start + u16::try_from(random).expect("a port");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {} and {}", PORTS.start, PORTS.end);
}

/// Where `scripts/setup` installs what the system's package manager doesn't have.
pub(super) fn cached(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty());
    let cache = cache.map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").unwrap_or_default();
        PathBuf::from(home).join(".cache")
    });
    cache.join("postrider").join(name)
}
