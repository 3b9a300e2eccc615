//! Where the demo lives: a directory of the caller's, which is kept, or a temporary one, which is not.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;
use uuid::Uuid;

use crate::{
    cli::Output,
    exit::{Exit, Failure},
};

/// The directory.
pub struct Place {
    dir: PathBuf,
    temporary: bool,
}

impl Place {
    /// This directory, or a temporary one.
    pub fn take(dir: Option<PathBuf>) -> Result<Self, Failure> {
        let temporary = dir.is_none();
        let dir = dir.unwrap_or_else(|| {
            // Short, for the database's socket is below it.
            let name = Uuid::new_v4().simple().to_string();
            std::env::temp_dir().join(format!("postrider-demo-{}", &name[..8]))
        });
        let failed = |e: std::io::Error| {
            let doing = format!(
                "{} can't be used; name another with --data-dir",
                dir.display()
            );
            Failure::caused(Exit::Failed, &doing, &e)
        };
        if !dir.exists() {
            std::fs::create_dir_all(&dir).map_err(failed)?;
            // Under root the database server is another user, who must pass through.
            let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
            std::fs::set_permissions(&dir, Permissions::from_mode(mode)).map_err(failed)?;
        }
        let dir = dir.canonicalize().map_err(failed)?;
        Ok(Self { dir, temporary })
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Leaves nothing behind that was not asked for.
    pub async fn leave(self, output: &Output) {
        if !self.temporary {
            return;
        }
        // The socket of a server whose directory has a long name is elsewhere, and goes with the cluster.
        if let Err(error) = postrider_embedded::remove(&self.dir).await {
            output.say(&crate::exit::chain(&error));
        }
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            let dir = self.dir.display();
            output.say(&format!("{dir} could not be removed: {error}"));
        }
    }
}
