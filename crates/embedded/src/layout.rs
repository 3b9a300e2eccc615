//! Directories, their permissions, and the lock that admits one program.
//!
//! ```text
//! <data_dir>/postgres.lock        locked while a program uses the directory; contains its pid
//! <data_dir>/postgres/            0700, the server user's
//!                    /data        the cluster
//!                    /data.new-*  an unfinished cluster; deleted at the next start
//!                    /run         the socket (elsewhere if this path is too long for one)
//!                    /server.log  the server's log
//! ```

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::account::Account;
use crate::error::Error;

/// A socket's path must fit into 107 bytes, 103 on some systems; `/.s.PGSQL.5432.lock` needs 19.
const MAX_SOCKET_DIR_LEN: usize = 80;

/// Time between fork and exec of our own children, on a busy machine.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Paths of one private cluster.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) data_dir: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) cluster: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) socket_dir: PathBuf,
    lock: PathBuf,
}

impl Layout {
    /// Paths under this data directory; changes nothing.
    pub(crate) fn of(data_dir: &Path) -> Result<Self, Error> {
        // Resolve links: the socket's name is derived from the path, which must be unique.
        let data_dir = match data_dir.canonicalize() {
            Ok(path) => path,
            Err(_) => {
                std::path::absolute(data_dir).map_err(Error::io("find the directory", data_dir))?
            }
        };
        let home = data_dir.join("postgres");
        let run = home.join("run");
        let socket_dir = if run.as_os_str().len() <= MAX_SOCKET_DIR_LEN {
            run
        } else {
            short_socket_dir(&data_dir)
        };
        Ok(Self {
            cluster: home.join("data"),
            log: home.join("server.log"),
            lock: data_dir.join("postgres.lock"),
            socket_dir,
            home,
            data_dir,
        })
    }

    /// Creates the data directory if there is none.
    pub(crate) fn create_data_dir(data_dir: &Path) -> Result<(), Error> {
        if data_dir.is_dir() {
            return Ok(());
        }
        std::fs::create_dir_all(data_dir).map_err(Error::io("create", data_dir))?;
        // Under root the server's user must be able to traverse it, whatever the umask is.
        let mode = if nix::unistd::geteuid().is_root() {
            0o711
        } else {
            0o700
        };
        std::fs::set_permissions(data_dir, Permissions::from_mode(mode))
            .map_err(Error::io("set the permissions of", data_dir))
    }

    /// Locks the directory for this program; the kernel releases it when the program ends.
    ///
    /// A forked child holds the lock until its exec, so this waits for a lock that this program has just released.
    pub(crate) async fn lock(&self) -> Result<File, Error> {
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            match self.try_lock() {
                Err(Error::InUse {
                    holder: Some(holder),
                    ..
                }) if holder == std::process::id() && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                other => return other,
            }
        }
    }

    fn try_lock(&self) -> Result<File, Error> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.lock)
            .map_err(Error::io("open the lock file", &self.lock))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The holder may not have written its pid yet.
                let _ = file.read_to_string(&mut holder);
                return Err(Error::InUse {
                    data_dir: self.data_dir.clone(),
                    holder: holder.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(source)) => {
                return Err(Error::io("lock", &self.lock)(source));
            }
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(Error::io("write the lock file", &self.lock))?;
        Ok(file)
    }

    /// Creates the private directories for this account, after checking that it can reach them.
    pub(crate) fn prepare(&self, account: &Account) -> Result<(), Error> {
        if account.switch {
            for dir in self.data_dir.ancestors() {
                let metadata =
                    std::fs::metadata(dir).map_err(Error::io("read the metadata of", dir))?;
                if !account.may_traverse(&metadata) {
                    return Err(Error::Untraversable {
                        dir: dir.to_owned(),
                        user: account.name.clone(),
                    });
                }
            }
        }
        private_dir(&self.home, account)?;
        private_dir(&self.socket_dir, account)
    }

    /// Major version of the cluster; `None` if there is no cluster yet.
    pub(crate) fn cluster_version(&self) -> Result<Option<u32>, Error> {
        let Ok(mut entries) = std::fs::read_dir(&self.cluster) else {
            return match self.cluster.try_exists() {
                Ok(false) => Ok(None),
                _ => Err(self.not_a_cluster()),
            };
        };
        if entries.next().is_none() {
            return Ok(None);
        }
        std::fs::read_to_string(self.cluster.join("PG_VERSION"))
            .ok()
            .and_then(|text| text.trim().split('.').next()?.parse().ok())
            .map(Some)
            .ok_or_else(|| self.not_a_cluster())
    }

    fn not_a_cluster(&self) -> Error {
        Error::NotACluster {
            cluster: self.cluster.clone(),
        }
    }

    /// Deletes everything except the data directory itself.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        for dir in [&self.socket_dir, &self.home] {
            match std::fs::remove_dir_all(dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("delete", dir)(error));
                }
                _ => {}
            }
        }
        std::fs::remove_file(&self.lock).map_err(Error::io("delete", &self.lock))
    }
}

/// A short socket directory, always the same for a data directory.
fn short_socket_dir(data_dir: &Path) -> PathBuf {
    let name = format!("postrider-{:016x}", fnv1a(data_dir.as_os_str().as_bytes()));
    let in_temp = std::env::temp_dir().join(&name);
    if in_temp.as_os_str().len() <= MAX_SOCKET_DIR_LEN {
        in_temp
    } else {
        Path::new("/tmp").join(name)
    }
}

/// FNV-1a: stable across builds, unlike the standard hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Creates a directory that only the account (and root) can enter, or checks that it is one: in a
/// shared temporary directory another user could have created it, or a link with that name.
fn private_dir(dir: &Path, account: &Account) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create", dir)(error)),
    }
    let metadata =
        std::fs::symlink_metadata(dir).map_err(Error::io("read the metadata of", dir))?;
    let not_private = |why| Error::NotPrivate {
        dir: dir.to_owned(),
        user: account.name.clone(),
        why,
    };
    if !metadata.is_dir() {
        return Err(not_private("it is not a directory"));
    }
    // A directory of root is from a start that was interrupted before the chown.
    if metadata.uid() != account.uid && !(account.switch && metadata.uid() == 0) {
        return Err(not_private("it belongs to another user"));
    }
    if metadata.mode() & 0o777 != 0o700 {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700))
            .map_err(Error::io("set the permissions of", dir))?;
    }
    account.chown(dir)
}

/// Encodes a path as a value of a URL query.
pub(crate) fn percent_encode(path: &Path) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Account {
        Account {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            name: "me".to_owned(),
            switch: false,
        }
    }

    #[test]
    fn a_long_path_gets_a_short_and_stable_socket_directory() {
        let long = PathBuf::from(format!("/data/{}", "x".repeat(120)));
        let first = Layout::of(&long).unwrap();
        let again = Layout::of(&long).unwrap();
        assert!(first.socket_dir.as_os_str().len() <= MAX_SOCKET_DIR_LEN);
        assert_eq!(first.socket_dir, again.socket_dir);
        let other = Layout::of(&long.join("y")).unwrap();
        assert_ne!(first.socket_dir, other.socket_dir);
    }

    #[test]
    fn a_socket_directory_of_another_user_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        let error = private_dir(&link, &me()).unwrap_err();
        assert!(matches!(error, Error::NotPrivate { .. }), "{error}");
        let mut other = me();
        other.uid += 1;
        let error = private_dir(temp.path(), &other).unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
    }

    #[test]
    fn a_world_readable_directory_is_made_private() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), Permissions::from_mode(0o755)).unwrap();
        private_dir(temp.path(), &me()).unwrap();
        assert_eq!(temp.path().metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_without_a_cluster_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::of(temp.path()).unwrap();
        assert_eq!(layout.cluster_version().unwrap(), None);
        std::fs::create_dir_all(layout.cluster.join("holiday-pictures")).unwrap();
        let error = layout.cluster_version().unwrap_err();
        assert!(matches!(error, Error::NotACluster { .. }), "{error}");
    }

    #[test]
    fn unusual_paths_are_encoded_in_urls() {
        assert_eq!(percent_encode(Path::new("/a b/é&?")), "/a%20b/%C3%A9%26%3F");
    }
}
