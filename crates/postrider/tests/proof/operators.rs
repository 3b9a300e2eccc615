//! Operators' actions: many dead letters are redriven and archived in chunks by the current leader, and every crash
//! point on that way meets every action.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use postrider::Error;
use postrider::dead_letter::{Action as AuditEntry, DeadLetters, Filter, OperationRequest};
use postrider::leader::{Periodic, run_periodic};
use postrider::lease::Operator;
use postrider::outbox::OUTBOX;
use postrider_testkit::{crash, within};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::anywhere::{ACTIONS, Action, LEASE, arm, side_by_side};
use crate::dice::Dice;
use crate::program::{Child, Role};
use crate::scale;
use crate::stage::{PATIENCE, Place, Stage, finished};
use crate::work::{EFFECT, PLAIN, keep, supervise};

const LETTERS: i64 = 30;
/// Slow enough for several pieces and for a heartbeat in between.
const PER_SECOND: f64 = 60.0;
const TASK: &str = "operations";

const FILL: &str = "
    insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_message, cause)
    select topic, json_build_object('key', topic || n, 'fails', 0, 'millis', 0), 'dead', now() - interval '1 hour', 4,
           'GONE', 'it was away', 'GONE: it was away'
    from unnest($1::text[]) topic, generate_series(1, $2) n";
const OPEN: &str = "select count(*) from postrider.operation where finished_at is null";
const UNTIL: &str = "select until from postrider.leader where name = $1";

/// Whether the operators' case reaches it, rather than that of the workers.
pub fn reaches(point: &str) -> bool {
    point.starts_with("operation.") || point.starts_with("leader.")
}

#[test]
fn every_crash_point_of_the_operators_way_meets_every_action_and_each_letter_is_moved_once() {
    let mut dice = Dice::of("operators");
    let mut cases = Vec::new();
    let points = crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    for round in 0..scale::rounds() {
        for point in points.iter().filter(|point| reaches(point)) {
            for action in ACTIONS {
                let name = format!("{point} {action:?} {round}");
                let (point, dice) = (point.clone(), dice.split());
                cases.push((name, async move || meet(&point, action, dice).await));
            }
        }
    }
    assert!(cases.len() >= 4 * 4, "where have the crash points gone?");
    side_by_side(cases);
}

async fn meet(point: &str, action: Action, mut dice: Dice) {
    let stage = Stage::new().await;
    let (place, pool) = (stage.place(), stage.db.pool());
    ask(&pool).await;
    if action == Action::Kill {
        let plan = format!("{point}=kill");
        let mut child = Child::start(Role::Operators, &place, "o", dice.seed(), LEASE, &plan);
        let status = child.program.wait().await;
        let said = child.program.output();
        assert_eq!(status.signal(), Some(9), "not reached: {said:?}");
        play(&place, LEASE).await;
    } else {
        let trap = arm(point, action);
        play(&place, LEASE).await;
        assert_eq!(trap.fired(), 1, "no call reached the point");
    }
    check(&pool).await;
}

fn letters() -> DeadLetters {
    DeadLetters::new([&OUTBOX]).unwrap()
}

/// Dead letters of two kinds, and what an operator wants of each.
async fn ask(pool: &PgPool) {
    sqlx::query(FILL)
        .bind([EFFECT, PLAIN])
        .bind(LETTERS)
        .execute(pool)
        .await
        .unwrap();
    let operator = Operator {
        name: "somebody".to_owned(),
        reason: None,
    };
    for (action, kind) in [(AuditEntry::Redrive, EFFECT), (AuditEntry::Archive, PLAIN)] {
        let filter = Filter {
            kind: Some(kind.to_owned()),
            ..Filter::default()
        };
        let order = OperationRequest {
            rate: Some(PER_SECOND),
            ..OperationRequest::new(action, filter)
        };
        letters().submit(pool, &operator, &order).await.unwrap();
    }
}

/// Two candidates and a worker, until nothing is left to do and the leader has shown that it lives.
pub async fn play(place: &Place, lease: Duration) {
    let watch = place.pool(1);
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let worker = supervise(place.clone(), 3, "o".to_owned(), lease, stop.clone());
    let worker = tokio::spawn(worker);
    let candidates: Vec<_> = (0..2)
        .map(|_| tokio::spawn(stand(place.pool(3), lease, stop.clone())))
        .collect();
    within(PATIENCE, "the orders are carried out", async || {
        let open: i64 = sqlx::query_scalar(OPEN).fetch_one(&watch).await.unwrap();
        if open == 0 { Ok(()) } else { Err(open) }
    })
    .await;
    finished(&watch).await;
    let before = until(&watch).await;
    within(PATIENCE, "the leader's heart beats", async || {
        let now = until(&watch).await;
        if now > before { Ok(()) } else { Err(now) }
    })
    .await;
    stop.cancel();
    worker.await.unwrap();
    for candidate in candidates {
        candidate.await.unwrap();
    }
}

async fn until(pool: &PgPool) -> Option<time::OffsetDateTime> {
    let held = sqlx::query_scalar(UNTIL).bind(TASK).fetch_optional(pool);
    held.await.unwrap().flatten()
}

/// Does the orders' next pieces whenever it leads.
async fn stand(pool: PgPool, lease: Duration, stop: CancellationToken) {
    keep(stop, move |until| {
        let periodic = Periodic::new(TASK, Duration::from_millis(30)).lease(lease);
        let own = pool.clone();
        let standing = run_periodic(pool.clone(), periodic, until, move |_| {
            let pool = own.clone();
            async move {
                for id in letters().open_operations(&pool).await? {
                    letters().step(&pool, id).await?;
                }
                Ok::<(), Error>(())
            }
        });
        tokio::spawn(async move { standing.await.is_ok() })
    })
    .await;
}

async fn check(pool: &PgPool) {
    let wrong: Vec<(String, String, i64)> = sqlx::query_as(
        "select 'order', action, changed * 1000 + skipped from postrider.operation
             where (changed, skipped) <> ($1, 0) or stopped_by is not null
         union all
         select 'effect', key, count(*) from proof.effect group by key, step having count(*) > 1 or step <> 'done'
         union all
         select 'effects', 'all', count(*) from proof.effect having count(*) <> $1
         union all
         select 'archived', 'all', count(*) from postrider.archive having count(*) <> $1
         union all
         select 'archived', item_id::text, count(*) from postrider.archive group by item_id having count(*) > 1
         union all
         select 'left', topic, count(*) from postrider.outbox group by topic",
    )
    .bind(LETTERS)
    .fetch_all(pool)
    .await
    .unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
}
