//! The checker is checked: after a clean run each kind of evidence is tampered with, and each time it must notice.

use sqlx::AssertSqlSafe;

use crate::case;
use crate::check::{Allowed, examine};
use crate::dice::Dice;
use crate::journal::{Journal, Paper};
use crate::stage::Stage;

/// What is done to the evidence, and what the checker must say. `case-2` fails once and is done, `case-3` dies,
/// `case-4` was rolled back, `case-12` came by the ledger, and the lane `shared` ends with `case-18`.
const TAMPERINGS: &[(&str, &str, &str)] = &[
    (
        "an effect twice",
        "insert into proof.effect (key, step, attempts, losses)
         select key, step, attempts, losses from proof.effect where key = 'case-2' and step = 'done'",
        "effects: 2 done",
    ),
    (
        "an effect of a group twice",
        "insert into proof.effect (key, step, attempts, losses)
         select key, step, 0, 0 from proof.effect where step = 'apart' limit 1",
        "the group apart had 2 effects",
    ),
    (
        "a failed attempt twice",
        "insert into proof.effect (key, step, attempts, losses)
         select key, step, attempts, losses from proof.effect where key = 'case-2' and step = 'failed'",
        "2 failed attempts logged, 1 in the journal",
    ),
    (
        "an effect lost",
        "delete from proof.effect where key = 'case-2' and step = 'done'",
        "effects: 0 done",
    ),
    (
        "an item lost",
        "delete from postrider.completion where work_table = 'postrider.outbox'",
        "completed 0 times",
    ),
    (
        "an item finished twice",
        "insert into postrider.completion (work_table, worker, ids)
         select work_table, worker, ids from postrider.completion where work_table = 'postrider.outbox'",
        "completed 2 times",
    ),
    (
        "a dead letter lost",
        "delete from postrider.outbox where payload->>'key' = 'case-3'",
        "completed 0 times, dead: false",
    ),
    (
        "a call that was rolled back and shows",
        "insert into proof.business (key, item) values ('case-4', 0)",
        "no effect was to come of it",
    ),
    (
        "an effect that nobody asked for",
        "insert into proof.effect (key, step, attempts, losses) values ('stranger', 'done', 0, 0)",
        "stranger: nobody asked for it",
    ),
    (
        "an attempt twice in the engine's journal",
        "insert into postrider.attempt select * from postrider.attempt where work_table = 'postrider.outbox'",
        "attempts are not counted one by one",
    ),
    (
        "a failure that nobody planned",
        "update postrider.attempt set code = 'OTHER' where work_table = 'postrider.outbox' and code = 'PLANNED'",
        "failures that nobody planned",
    ),
    (
        "a counter that nothing explains",
        "update postrider.outbox set attempts = attempts - 1 where state = 'dead'",
        "the counter is not explained",
    ),
    (
        "the order of a lane",
        "update proof.effect set n = 0 where key = 'case-18'",
        "lane shared: case-18 came before the end of",
    ),
    (
        "a request that the ledger did not finish",
        "update postrider.ledger set state = 'accepted', result = null, finished_at = null where key = 'case-12'",
        "the ledger says Some(\"accepted\")",
    ),
];

#[tokio::test]
async fn the_checker_notices_every_kind_of_tampering() {
    let stage = Stage::new().await;
    let (place, paper) = (stage.place(), Paper::default());
    let lease = std::time::Duration::from_secs(2);
    let dice = Dice::of("tampering");
    case::play(&place, &place, 3, lease, dice, paper.pen()).await;
    let mut journal = Journal::default();
    journal.read(&paper.lines());
    let pool = stage.db.pool();
    let allowed = Allowed::default();
    for (what, tampering, expected) in TAMPERINGS {
        let mut tx = pool.begin().await.unwrap();
        let (_, before) = examine(&mut tx, &journal, &stage.outside, allowed).await;
        assert!(before.is_empty(), "{before:#?}");
        let done = sqlx::query(AssertSqlSafe(*tampering))
            .execute(&mut *tx)
            .await;
        assert!(
            done.unwrap().rows_affected() > 0,
            "{what}: nothing to tamper with"
        );
        let (_, wrong) = examine(&mut tx, &journal, &stage.outside, allowed).await;
        assert!(
            wrong.iter().any(|wrong| wrong.contains(expected)),
            "{what}: {expected:?} was not said, but {wrong:#?}"
        );
        tx.rollback().await.unwrap();
    }
}
