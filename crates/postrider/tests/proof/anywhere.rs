//! Every crash point of the engine meets every action: an error, a panic, kill -9, a stall past the lease.
//!
//! The names come from the source, so a new point is in here at once, and one that no call reaches fails the test.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use postrider_testkit::crash;
use tokio::sync::Semaphore;

use crate::case;
use crate::check::{Allowed, check};
use crate::dice::Dice;
use crate::journal::{Journal, Paper};
use crate::operators;
use crate::program::{Child, Role};
use crate::scale;
use crate::stage::Stage;

pub const LEASE: Duration = Duration::from_millis(600);
/// Maximum number of concurrent cases over all tests: they mostly wait for leases, but each has a dozen connections.
const AT_ONCE: usize = 10;
static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Error,
    Panic,
    Kill,
    Stall,
}

pub const ACTIONS: [Action; 4] = [Action::Error, Action::Panic, Action::Kill, Action::Stall];

/// All points of the engine that producers and workers pass.
pub fn all() -> Vec<String> {
    let mut points = crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    points.retain(|point| !operators::reaches(point));
    points
}

/// Sets the trap, for what a process survives.
pub fn arm(point: &str, action: Action) -> crash::Armed {
    let arm = crash::at(point);
    match action {
        Action::Error => arm.error(),
        Action::Panic => arm.panic(),
        Action::Stall => arm.stall(LEASE * 3 / 2),
        Action::Kill => unreachable!("a child process is killed by its environment"),
    }
}

#[test]
fn every_crash_point_meets_every_action_and_no_promise_breaks() {
    let mut dice = Dice::of("points");
    let mut cases = Vec::new();
    for round in 0..scale::rounds() {
        for point in all() {
            for action in ACTIONS {
                let (name, dice) = (format!("{point} {action:?} {round}"), dice.split());
                let point = point.clone();
                cases.push((name, async move || meet(&point, action, dice).await));
            }
        }
    }
    assert!(cases.len() >= 4 * 10, "where have the crash points gone?");
    side_by_side(cases);
}

/// Runs cases side by side, each on a runtime of its own (an armed point belongs to a runtime), and fails with the
/// names of those that failed.
pub fn side_by_side<F: AsyncFnOnce() + Send>(cases: Vec<(String, F)>) {
    let count = cases.len();
    let cases = std::sync::Mutex::new(cases);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(count) {
            scope.spawn(|| {
                loop {
                    let Some((name, case)) = cases.lock().unwrap().pop() else {
                        return;
                    };
                    let run = std::panic::AssertUnwindSafe(|| {
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .enable_all()
                            .build()
                            .unwrap();
                        runtime.block_on(async {
                            let _place = PLACES.acquire().await.unwrap();
                            case().await;
                        });
                    });
                    if let Err(panic) = std::panic::catch_unwind(run) {
                        let text = panic.downcast_ref::<String>().cloned();
                        failures.lock().unwrap().push(format!("{name}: {text:?}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {count} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

async fn meet(point: &str, action: Action, dice: Dice) {
    let stage = Stage::new().await;
    let lines = match action {
        Action::Kill => be_killed(&stage, point, dice).await,
        _ => stay_alive(&stage, arm(point, action), dice).await,
    };
    let mut journal = Journal::default();
    journal.read(&lines);
    let allowed = Allowed {
        unplanned: matches!(action, Action::Error | Action::Panic),
        repeats: 0,
    };
    check(&stage.db.pool(), &journal, &stage.outside, allowed).await;
}

/// In this very process: the point goes off, and the engine gets over it.
async fn stay_alive(stage: &Stage, trap: crash::Armed, dice: Dice) -> Vec<String> {
    let place = stage.place();
    let paper = Paper::default();
    case::play(&place, &place, 3, LEASE, dice, paper.pen()).await;
    assert_eq!(trap.fired(), 1, "no call reached the point");
    paper.lines()
}

/// In a process that ends there and then; another one takes over.
async fn be_killed(stage: &Stage, point: &str, mut dice: Dice) -> Vec<String> {
    let place = stage.place();
    let plan = format!("{point}=kill");
    let mut child = Child::start(Role::Case, &place, "case", dice.seed(), LEASE, &plan);
    let status = child.program.wait().await;
    assert_eq!(
        status.signal(),
        Some(9),
        "no call reached the point: {:?}",
        child.program.output()
    );
    let lines = child.journal();
    case::clean_up(&place, LEASE).await;
    lines
}
