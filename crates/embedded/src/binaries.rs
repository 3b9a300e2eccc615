//! Finds PostgreSQL on PATH and in the distributions' directories, newest first.
//!
//! A cluster can only be opened by the major version that created it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::error::Error;
use crate::layout::Layout;

/// Oldest supported major version.
const MIN_VERSION: u32 = 15;

/// Where distributions install server programs outside PATH: parent directory, prefix of the next
/// name, and the rest.
const DISTRIBUTIONS: &[(&str, &str, &str)] = &[
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/lib", "postgresql", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/usr/local", "pgsql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// Install command per package manager.
const INSTALLERS: &[(&str, &str)] = &[
    ("apt-get", "sudo apt-get install -y postgresql"),
    ("dnf", "sudo dnf install -y postgresql-server"),
    ("yum", "sudo yum install -y postgresql-server"),
    ("apk", "sudo apk add postgresql"),
    ("pacman", "sudo pacman -S postgresql"),
    ("zypper", "sudo zypper install postgresql-server"),
    ("brew", "brew install postgresql"),
];

/// One set of PostgreSQL server programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The directory of `postgres` and `initdb`.
    pub bin_dir: PathBuf,
    /// The major version, which decides about the cluster's format.
    pub major: u32,
    /// The full version, such as `15.12`.
    pub version: String,
}

impl Installation {
    /// The path of one of its programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
}

/// All PostgreSQL server programs on this machine, newest first.
pub async fn installations() -> Vec<Installation> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for dir in candidates() {
        if let Some(installation) = probe(&dir).await
            && seen.insert(dir.join("postgres").canonicalize().unwrap_or(dir))
        {
            found.push(installation);
        }
    }
    // Stable: of equal versions, the one on PATH stays first.
    found.sort_by_key(|installation| std::cmp::Reverse(installation.major));
    found
}

/// The installation for this cluster, or for a new one if there is none yet.
pub(crate) async fn choose(bin_dir: Option<&Path>, layout: &Layout) -> Result<Installation, Error> {
    let found = match bin_dir {
        Some(dir) => vec![probe(dir).await.ok_or_else(|| Error::NotInBinDir {
            dir: dir.to_owned(),
        })?],
        None => installations().await,
    };
    pick(found, layout.cluster_version()?, layout)
}

fn pick(
    found: Vec<Installation>,
    made_by: Option<u32>,
    layout: &Layout,
) -> Result<Installation, Error> {
    let versions = found
        .iter()
        .map(|installation| installation.version.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    if found.is_empty() {
        return Err(Error::NotInstalled {
            install: install_command(),
        });
    }
    match made_by {
        Some(made_by) => found
            .into_iter()
            .find(|installation| installation.major == made_by)
            .ok_or_else(|| Error::VersionMismatch {
                cluster: layout.cluster.clone(),
                made_by,
                found: versions,
            }),
        None => found
            .into_iter()
            .find(|installation| installation.major >= MIN_VERSION)
            .ok_or_else(|| Error::TooOld {
                found: versions,
                oldest: MIN_VERSION,
                install: install_command(),
            }),
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut dirs = path_dirs();
    for (parent, prefix, rest) in DISTRIBUTIONS {
        let Ok(entries) = std::fs::read_dir(parent) else {
            continue;
        };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                dirs.push(entry.path().join(rest));
            }
        }
    }
    dirs
}

fn path_dirs() -> Vec<PathBuf> {
    std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default()
}

/// A program on PATH or in the standard directories.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    path_dirs()
        .into_iter()
        .chain([PathBuf::from("/usr/bin"), PathBuf::from("/bin")])
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// Runs `postgres --version`; a directory whose binary doesn't respond is no installation.
async fn probe(dir: &Path) -> Option<Installation> {
    let postgres = dir.join("postgres");
    if !postgres.is_file() || !dir.join("initdb").is_file() {
        return None;
    }
    let output = Command::new(&postgres)
        .arg(OsStr::new("--version"))
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    let (major, version) = parse_version(&String::from_utf8_lossy(&output.stdout))?;
    Some(Installation {
        bin_dir: dir.to_owned(),
        major,
        version,
    })
}

/// Reads `postgres (PostgreSQL) 15.12 (Debian 15.12-1)`.
fn parse_version(text: &str) -> Option<(u32, String)> {
    let version = text
        .split("(PostgreSQL)")
        .nth(1)?
        .split_whitespace()
        .next()?;
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((digits.parse().ok()?, version.to_owned()))
}

fn install_command() -> &'static str {
    INSTALLERS
        .iter()
        .find(|(program, _)| on_path(program).is_some())
        .map_or("your system's package manager", |(_, command)| command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(major: u32) -> Installation {
        Installation {
            bin_dir: PathBuf::from(format!("/pg/{major}")),
            major,
            version: format!("{major}.1"),
        }
    }

    fn layout() -> Layout {
        Layout::of(Path::new("/data")).unwrap()
    }

    #[test]
    fn version_strings_of_all_distributions_are_parsed() {
        let major = |text| parse_version(text).map(|(major, _)| major);
        assert_eq!(
            major("postgres (PostgreSQL) 15.12 (Debian 15.12-1)\n"),
            Some(15)
        );
        assert_eq!(major("postgres (PostgreSQL) 18beta2"), Some(18));
        assert_eq!(major("postgres (PostgreSQL) 9.6.24"), Some(9));
        assert_eq!(major("something else 15"), None);
    }

    #[test]
    fn a_new_cluster_uses_the_newest_version_and_an_old_one_its_own() {
        let found = vec![installation(17), installation(15)];
        assert_eq!(pick(found.clone(), None, &layout()).unwrap().major, 17);
        assert_eq!(pick(found, Some(15), &layout()).unwrap().major, 15);
    }

    #[test]
    fn a_version_mismatch_names_both_versions_and_the_fix() {
        let error = pick(vec![installation(17)], Some(16), &layout()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("created by PostgreSQL 16"), "{text}");
        assert!(text.contains("only 17.1 is installed"), "{text}");
        assert!(text.contains("pg_upgrade"), "{text}");
    }

    #[test]
    fn missing_binaries_suggest_the_install_command() {
        let text = pick(Vec::new(), None, &layout()).unwrap_err().to_string();
        assert!(text.contains("install them with `"), "{text}");
    }

    #[test]
    fn a_version_that_is_too_old_is_refused() {
        let error = pick(vec![installation(13)], None, &layout()).unwrap_err();
        assert!(matches!(error, Error::TooOld { .. }), "{error}");
    }
}
