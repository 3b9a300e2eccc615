//! The server's disk runs full under load, and has room again a while later.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use postrider_embedded::Options;
use postrider_testkit::eventually;
use sqlx::PgPool;
use tempfile::TempDir;

use crate::crashes::{Server, under_load};
use crate::dice::Dice;
use crate::scale;

/// Enough for a cluster and its log, and soon full.
const SIZE: &str = "size=256m,mode=755";
static CHUNK: [u8; 64 * 1024] = [7; 64 * 1024];
/// So long nothing can be written; items are tried again several times meanwhile.
const FULL: Duration = Duration::from_secs(3);

/// Writes what no page at hand has room for.
const PROBE: &str = "
    create table if not exists proof.ballast (bytes text);
    alter table proof.ballast alter bytes set storage external;
    insert into proof.ballast select repeat('x', 1000000) from generate_series(1, 20)";
const DISK_FULL: &str = "53100";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_runs_full_loses_nothing_and_doubles_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let data = disk.dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    // A log that is thrown away early leaves the room to the tables.
    let options = Options::new(&data)
        .setting("max_wal_size", "48MB")
        .setting("min_wal_size", "32MB");
    let server = Server::start(options).await;
    let dice = Dice::of("full disk");
    under_load(server, scale::scarcities(), dice, async |_, watch, _| {
        let filler = disk.fill();
        the_server_feels_it(watch).await;
        tokio::time::sleep(FULL).await;
        std::fs::remove_file(filler).unwrap();
        eventually("the disk has room", async || {
            let cleared = sqlx::raw_sql("drop table if exists proof.ballast");
            cleared
                .execute(watch)
                .await
                .map_err(|error| error.to_string())
        })
        .await;
    })
    .await;
}

/// The server says that the disk is full, or has gone down over it.
async fn the_server_feels_it(pool: &PgPool) {
    eventually("the disk is full", async || {
        match sqlx::raw_sql(PROBE).execute(pool).await {
            Ok(_) => Err("there was room".to_owned()),
            Err(sqlx::Error::Database(error)) if error.code().is_some_and(|c| c == DISK_FULL) => {
                Ok(())
            }
            Err(sqlx::Error::Database(error)) => Err(error.to_string()),
            Err(_) => Ok(()),
        }
    })
    .await;
}

/// A disk in memory; it is gone when this is dropped.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// None without the right to mount, which is a printed skip.
    fn mount() -> Option<Self> {
        let dir = postrider_testkit::builders::data_dir();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", SIZE, "postrider-test"])
            .arg(dir.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { dir }),
            _ => {
                eprintln!("SKIPPED without the right to mount a small disk");
                None
            }
        }
    }

    /// Takes all room that is left.
    fn fill(&self) -> PathBuf {
        let path = self.dir.path().join("filler");
        write_until_full(&path);
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, without waiting for processes that still have files open there.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.dir.path())
            .status();
    }
}

fn write_until_full(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    loop {
        match file.write_all(&CHUNK) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}
