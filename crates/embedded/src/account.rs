//! The server's user. PostgreSQL refuses to run as root, so root switches to another user.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Gid, Uid, User, getegid, geteuid};
use tokio::process::Command;

use crate::error::Error;

/// Conventional id of `nobody`, for systems without the name.
const NOBODY: u32 = 65534;

/// The user that the server's processes and files belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) name: String,
    /// The program runs as root and must switch to this user.
    pub(crate) switch: bool,
}

impl Account {
    /// An existing cluster keeps its owner. A new one belongs to the program's user, or under root
    /// to `postgres` or else `nobody`.
    pub(crate) fn choose(cluster: &Path) -> Result<Self, Error> {
        let owner = std::fs::metadata(cluster).ok();
        if !geteuid().is_root() {
            let own = Self::of(geteuid(), getegid(), false);
            return match owner {
                Some(owner) if owner.uid() != own.uid => Err(Error::Owner {
                    cluster: cluster.to_owned(),
                    owner: name_of(Uid::from_raw(owner.uid())),
                    why: "only its owner may open it",
                }),
                _ => Ok(own),
            };
        }
        match owner {
            Some(owner) if owner.uid() == 0 => Err(Error::Owner {
                cluster: cluster.to_owned(),
                owner: "root".to_owned(),
                why: "PostgreSQL does not run as root",
            }),
            Some(owner) => Ok(Self::of(
                Uid::from_raw(owner.uid()),
                Gid::from_raw(owner.gid()),
                true,
            )),
            None => Ok(Self::unprivileged()),
        }
    }

    fn unprivileged() -> Self {
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .filter(|user| !user.uid.is_root())
            .map_or_else(
                || Self::of(Uid::from_raw(NOBODY), Gid::from_raw(NOBODY), true),
                |user| Self::of(user.uid, user.gid, true),
            )
    }

    fn of(uid: Uid, gid: Gid, switch: bool) -> Self {
        Self {
            uid: uid.as_raw(),
            gid: gid.as_raw(),
            name: name_of(uid),
            switch,
        }
    }

    /// Makes a command run as this user in this directory, without PostgreSQL's environment
    /// variables. Switching the user also drops root's supplementary groups.
    pub(crate) fn apply(&self, command: &mut Command, dir: &Path) {
        if self.switch {
            command.uid(self.uid).gid(self.gid);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").current_dir(dir);
    }

    /// Whether this user may traverse a directory, by its permission bits.
    pub(crate) fn may_traverse(&self, dir: &std::fs::Metadata) -> bool {
        let bit = if dir.uid() == self.uid {
            0o100
        } else if dir.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        dir.mode() & bit != 0
    }

    /// Changes the owner of a file or directory of root to this user.
    pub(crate) fn chown(&self, path: &Path) -> Result<(), Error> {
        if !self.switch {
            return Ok(());
        }
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))
            .map_err(Error::io("change the owner of", path))
    }
}

fn name_of(uid: Uid) -> String {
    User::from_uid(uid)
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}
