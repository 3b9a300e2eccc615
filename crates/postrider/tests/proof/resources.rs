//! Scarce resources: one connection for everything, a pooler between, a clock that is wrong.

use std::path::Path;
use std::time::Duration;

use postrider_testkit::pooler::{Mode, Pooler};
use sqlx::postgres::PgConnectOptions;

use crate::anywhere::side_by_side;
use crate::case;
use crate::check::{Allowed, check};
use crate::dice::Dice;
use crate::journal::{Journal, Paper};
use crate::scale;
use crate::stage::{Place, Stage};

const LEASE: Duration = Duration::from_millis(600);

#[test]
fn one_connection_is_enough() {
    let mut dice = Dice::of("pool of one");
    let cases = (0..scale::scarcities())
        .map(|n| {
            let dice = dice.split();
            (format!("pool of one {n}"), async move || {
                let stage = Stage::new().await;
                undisturbed(&stage, &stage.place(), 1, dice).await;
            })
        })
        .collect();
    side_by_side(cases);
}

/// Each connection has its session here; see `pool::keeps_statements_apart` for the other kind of pooler.
#[test]
fn a_pooler_in_session_mode_is_in_nobodys_way() {
    let mut dice = Dice::of("pooler");
    let cases = (0..scale::scarcities())
        .map(|n| {
            let dice = dice.split();
            (format!("pooler {n}"), async move || {
                let stage = Stage::new().await;
                let Some(pooler) = Pooler::start(&stage.db, Mode::Session).await else {
                    return;
                };
                let options: PgConnectOptions = pooler.url().parse().unwrap();
                let place = Place {
                    // PgBouncer refuses this setting.
                    database: options.extra_float_digits(None),
                    ..stage.place()
                };
                undisturbed(&stage, &place, 8, dice).await;
            })
        })
        .collect();
    side_by_side(cases);
}

async fn undisturbed(stage: &Stage, place: &Place, size: u32, dice: Dice) {
    let paper = Paper::default();
    case::play(place, &stage.place(), size, LEASE, dice, paper.pen()).await;
    let mut journal = Journal::default();
    journal.read(&paper.lines());
    check(
        &stage.db.pool(),
        &journal,
        &stage.outside,
        Allowed::default(),
    )
    .await;
}

/// A worker's clock can be wrong by any amount because the engine never reads it: leases and due times are the
/// database's, and the watchdog measures spans with a steady clock. What may read it is shown to people, no more.
#[test]
fn no_clock_of_a_worker_decides_anything() {
    const SHOWN_TO_PEOPLE: [(&str, usize); 1] = [("leader.rs", 1)];
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    assert!(files.len() > 30);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let reads = ["now_utc(", "now_local(", "SystemTime::now("]
            .iter()
            .map(|call| text.matches(call).count())
            .sum::<usize>();
        let name = file
            .strip_prefix(&src)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let allowed = SHOWN_TO_PEOPLE.iter().find(|(shown, _)| *shown == name);
        assert!(
            reads <= allowed.map_or(0, |(_, most)| *most),
            "{name} reads the machine's clock; leases and due times are the database's"
        );
    }
}

fn collect(dir: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
