//! Where the demo lives: a directory of the caller's, which is kept, or a temporary one, which is not.

use std::{
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

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
            std::env::temp_dir().join(format!("postrider-demo-{}", std::process::id()))
        });
        let failed = |e: std::io::Error| {
            let doing = format!(
                "{} can't be used; name another with --data-dir",
                dir.display()
            );
            Failure::caused(Exit::Failed, &doing, &e)
        };
        // A temporary one must be new: somebody else could have made it first. Others may pass through, for under root the
        // database server is another user; what is inside is private.
        std::fs::DirBuilder::new()
            .recursive(!temporary)
            .mode(0o711)
            .create(&dir)
            .map_err(failed)?;
        if temporary {
            let mode = std::fs::Permissions::from_mode(0o711);
            std::fs::set_permissions(&dir, mode).map_err(failed)?;
        }
        let dir = dir.canonicalize().map_err(failed)?;
        Ok(Self { dir, temporary })
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Leaves nothing behind that was not asked for.
    pub fn leave(self, output: &Output) {
        if self.temporary
            && let Err(error) = std::fs::remove_dir_all(&self.dir)
        {
            let dir = self.dir.display();
            output.say(&format!("{dir} could not be removed: {error}"));
        }
    }
}
