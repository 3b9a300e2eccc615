//! The demo's data directory: the caller's, which is kept, or a temporary one, which is removed at the end.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;
use uuid::Uuid;

use super::Error;

/// The data directory.
pub struct Directory {
    path: PathBuf,
    temporary: bool,
}

impl Directory {
    /// Creates this directory if it does not exist, or a temporary one.
    pub fn open(dir: Option<PathBuf>) -> Result<Self, Error> {
        let temporary = dir.is_none();
        let path = dir.unwrap_or_else(|| {
            // Short: the path of the database's socket starts with it, and is limited.
            let name = Uuid::new_v4().simple().to_string();
            std::env::temp_dir().join(format!("postrider-demo-{}", &name[..8]))
        });
        let failed = |e: std::io::Error| {
            let context = format!(
                "can't use {}; choose another directory with --data-dir",
                path.display()
            );
            Error::caused(&context, &e)
        };
        if !path.exists() {
            std::fs::create_dir_all(&path).map_err(failed)?;
            // Under root the database server runs as another user, who must be able to traverse it.
            let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed)?;
        }
        let path = path.canonicalize().map_err(failed)?;
        Ok(Self { path, temporary })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a temporary directory with everything in it.
    pub async fn close(self) -> Result<(), Error> {
        if !self.temporary {
            return Ok(());
        }
        // With a long directory name the server's socket is elsewhere, and goes with the cluster.
        let cluster = postrider_embedded::remove(&self.path).await;
        std::fs::remove_dir_all(&self.path)
            .map_err(|e| Error::caused(&format!("can't remove {}", self.path.display()), &e))?;
        cluster.map_err(|e| Error::caused("can't remove the demo's database", &e))
    }
}
