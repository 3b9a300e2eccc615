//! Builders that many tests share: a data directory, and command lines of the program.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A data directory, removed at the end of the test. Other users may traverse it: under root, the server runs as another
/// user.
pub fn data_dir() -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix("postrider-")
        .tempdir()
        .expect("make a temporary directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711))
        .expect("open the directory to others");
    dir
}

/// A command without the `POSTRIDER_` variables of the environment.
pub fn program(binary: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("POSTRIDER_") {
            command.env_remove(name);
        }
    }
    command
}

/// `serve` on a free port.
#[derive(Debug)]
pub struct Serve(Command);

impl Serve {
    /// Runs this binary on this data directory.
    pub fn new(binary: impl AsRef<OsStr>, data_dir: &Path) -> Self {
        let mut command = program(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(data_dir);
        Self(command)
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.0.args(args);
        self
    }

    /// The finished command.
    pub fn command(self) -> Command {
        self.0
    }
}
