//! Workers and producers as processes of their own: this test binary, started again with one test selected.

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use postrider_testkit::Program;
use sqlx::ConnectOptions;
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use crate::case;
use crate::dice::Dice;
use crate::journal::Pen;
use crate::operators;
use crate::produce::Producer;
use crate::stage::Place;
use crate::work::supervise;

const ROLE: &str = "PROOF_ROLE";
const DATABASE: &str = "PROOF_DATABASE";
const OUTSIDE: &str = "PROOF_OUTSIDE";
const NAME: &str = "PROOF_NAME";
const SEED: &str = "PROOF_SEED";
const LEASE: &str = "PROOF_LEASE_MS";
const JOURNAL: &str = "PROOF_JOURNAL";

/// What a child process is.
#[derive(Debug, Clone, Copy)]
pub enum Role {
    Worker,
    Producer,
    /// Both, for one pass over everything.
    Case,
    /// Who carries out what operators asked for.
    Operators,
}

/// A child and the journal that it leaves.
#[derive(Debug)]
pub struct Child {
    pub program: Program,
    journal: NamedTempFile,
}

impl Child {
    pub fn start(
        role: Role,
        place: &Place,
        name: &str,
        seed: u64,
        lease: Duration,
        crash: &str,
    ) -> Self {
        let journal = NamedTempFile::new().unwrap();
        let program = start(&[
            (ROLE, &format!("{role:?}")),
            (DATABASE, place.database.to_url_lossy().as_str()),
            (OUTSIDE, &place.outside.to_string()),
            (NAME, name),
            (SEED, &seed.to_string()),
            (LEASE, &lease.as_millis().to_string()),
            (JOURNAL, &journal.path().to_string_lossy()),
            (postrider_testkit::crash::VARIABLE, crash),
        ]);
        Self { program, journal }
    }

    /// What it wrote before its end.
    pub fn journal(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.journal.path()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn start(environment: &[(&str, &str)]) -> Program {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "program::child", "--nocapture"])
        .envs(environment.iter().copied());
    Program::start(&command)
}

#[test]
#[ignore = "the program that other tests start and kill"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let value = |name: &str| std::env::var(name).unwrap();
    let place = Place {
        database: value(DATABASE).parse().unwrap(),
        outside: value(OUTSIDE).parse().unwrap(),
    };
    let dice = Dice::from_seed(value(SEED).parse().unwrap());
    let lease = Duration::from_millis(value(LEASE).parse().unwrap());
    // A line is written at once and by one call: what was written before a kill -9 is there after it.
    let paper = File::options().append(true).open(value(JOURNAL)).unwrap();
    let pen: Pen =
        Arc::new(move |line| (&paper).write_all(format!("{line}\n").as_bytes()).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let never = CancellationToken::new();
    runtime.block_on(async {
        match role.as_str() {
            "Worker" => supervise(place, 3, value(NAME), lease, never).await,
            "Producer" => {
                let producer = Producer::new(place.pool(3), value(NAME), dice, pen);
                producer.run(never).await;
            }
            "Operators" => operators::play(&place, lease).await,
            _ => case::play(&place, &place, 3, lease, dice, pen).await,
        }
    });
}
