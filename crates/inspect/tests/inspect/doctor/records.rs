//! I5 to I8, dead letters, leaders and breakers.

use postrider::lease::{Operator, Queue};
use postrider::outbox::OUTBOX;
use postrider_inspect::doctor::{Check, Doctor, Severity::*};

use super::{
    examine, execute, expect_finding, expect_healthy, healthy_database, limits, only_problem,
    problems,
};

#[tokio::test]
async fn a_request_without_a_result_is_reported() {
    let found = expect_finding(
        "insert into postrider.ledger (scope, key, digest, created_at)
         select 'orders', n::text, decode(repeat('00', 32), 'hex'), now() - interval '1 hour' * n from unnest('{20, 22, 26, 30}'::int[]) n",
        "I5/ledger",
        Warning,
    )
    .await;
    assert_eq!(found.items, ["orders: 2"]);
}

#[tokio::test]
async fn an_inbox_past_its_retention_is_reported() {
    let db = healthy_database().await;
    execute(
        &db,
        "insert into postrider.inbox (consumer, message_id, received_at) values ('c', 'm', now() - interval '60 days')",
    )
    .await;
    only_problem(&examine(&db, limits()).await, "I5/inbox-pruning", Info);
}

#[tokio::test]
async fn items_due_longer_than_the_inbox_retention_are_reported() {
    expect_finding(
        "insert into postrider.outbox (topic, payload, due, state, lease_until, fence, lease_owner)
         values ('t', '{}', now() - interval '40 days', 'leased', now() + interval '1 minute', 7, 'w')",
        "I5/inbox-retention",
        Warning,
    )
    .await;
}

#[tokio::test]
async fn a_clock_set_back_is_reported() {
    let found = expect_finding(
        "update postrider.worker set seen_at = now() + interval '1 hour'",
        "I6/clock-went-back",
        Warning,
    )
    .await;
    assert_eq!(found.items, ["worker w"]);
}

const DEAD: &str = "
insert into postrider.outbox (topic, payload, state, finished_at, error_code, error_message, cause, attempts)
values ('t', '{}', 'dead', now(), 'X', 'it failed', 'X: it failed', 1);
insert into postrider.attempt (work_table, item_id, attempt, worker, started_at, outcome, code)
values ('postrider.outbox', 1, 1, 'w', now(), 'dead', 'X')";

#[tokio::test]
async fn a_dead_item_revived_by_hand_is_reported() {
    let db = healthy_database().await;
    execute(&db, DEAD).await;
    execute(
        &db,
        "update postrider.outbox set state = 'ready', finished_at = null, attempts = 0, due = now()",
    )
    .await;
    only_problem(&examine(&db, limits()).await, "I7/risen", Critical);
}

#[tokio::test]
async fn an_audited_redrive_is_healthy() {
    let db = healthy_database().await;
    execute(&db, DEAD).await;
    let queue = Queue::new(&OUTBOX).unwrap();
    let mut tx = db.pool().begin().await.unwrap();
    let operator = Operator::new("ann");
    queue.redrive(&mut tx, &operator, &[1]).await.unwrap();
    tx.commit().await.unwrap();
    let found = problems(&examine(&db, limits()).await, Info);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn a_deleted_dead_letter_is_reported() {
    let db = healthy_database().await;
    execute(&db, DEAD).await;
    execute(&db, "delete from postrider.outbox").await;
    let found = only_problem(&examine(&db, limits()).await, "I7/vanished", Critical);
    assert_eq!(found.items, ["1"]);
}

#[tokio::test]
async fn an_archived_dead_letter_is_healthy() {
    let db = healthy_database().await;
    execute(&db, DEAD).await;
    let queue = Queue::new(&OUTBOX).unwrap();
    let mut tx = db.pool().begin().await.unwrap();
    let operator = Operator::new("ann");
    queue.archive(&mut tx, &operator, &[1]).await.unwrap();
    tx.commit().await.unwrap();
    let found = problems(&examine(&db, limits()).await, Info);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn dead_letters_are_counted_and_grouped_by_cause() {
    let found = expect_finding(
        "insert into postrider.outbox (topic, payload, state, finished_at, error_code, error_message, cause)
         select 't', '{}', 'dead', now() - interval '1 hour' * n, 'TIMEOUT', 'order ' || n || ' timed out', 'c' from generate_series(1, 3) n;
         insert into postrider.outbox (topic, payload, state, finished_at, error_code, error_message, cause)
         values ('t', '{}', 'dead', now(), 'REFUSED', 'no', 'c')",
        "dead-letters",
        Warning,
    )
    .await;
    assert!(found.what.starts_with("4 dead letters"), "{found:?}");
    assert_eq!(
        found.items,
        ["3 × TIMEOUT: order <n> timed out", "1 × REFUSED: no"]
    );
}

#[tokio::test]
async fn a_lost_leader_is_reported_and_one_that_resigned_is_healthy() {
    let found = expect_finding(
        "insert into postrider.leader (name, holder, term, until, heartbeat)
         values ('lost', gen_random_uuid(), 3, now() - interval '5 minutes', now() - interval '6 minutes'),
                ('resigned', null, 3, null, now() - interval '6 minutes'),
                ('well', gen_random_uuid(), 3, now() + interval '5 seconds', now())",
        "fleet/leaders",
        Warning,
    )
    .await;
    assert_eq!(found.items, ["lost"]);
}

#[tokio::test]
async fn an_open_breaker_is_reported_unless_its_process_is_dead() {
    let found = expect_finding(
        "insert into postrider.breaker (dependency, process, state, failures, open_until, changed_at)
         values ('broker', gen_random_uuid(), 'open', 20, now() + interval '5 seconds', now()),
                ('broker', gen_random_uuid(), 'closed', 0, null, now()),
                ('bank', gen_random_uuid(), 'open', 20, now() - interval '5 hours', now() - interval '5 hours')",
        "fleet/breakers",
        Warning,
    )
    .await;
    let [item] = &found.items[..] else {
        panic!("one open breaker: {:?}", found.items);
    };
    assert!(item.starts_with("broker (in 1 process, for "), "{item}");
}

#[tokio::test]
async fn a_worker_without_heartbeats_is_reported() {
    let db = healthy_database().await;
    execute(
        &db,
        "update postrider.worker set seen_at = now() - interval '2 hours'",
    )
    .await;
    only_problem(&examine(&db, limits()).await, "fleet/workers", Info);
}

#[tokio::test]
async fn a_service_can_add_its_own_check() {
    const JOBS: Check = Check {
        name: "I8/jobs",
        severity: Critical,
        query: "select j.id from public.job j where j.state <> 'done' and not exists (select from public.part p where p.job = j.id and not p.done)",
        what: "jobs whose parts are done and which are not",
        advice: "run the finalizer",
    };
    let db = healthy_database().await;
    execute(
        &db,
        "create table public.job (id text, state text); create table public.part (job text, done bool);
         insert into public.job values ('a', 'running'), ('b', 'running'), ('c', 'done');
         insert into public.part values ('a', true), ('b', true), ('b', false), ('c', true)",
    )
    .await;
    let doctor = Doctor::new([&OUTBOX]).checks([JOBS]).limits(limits());
    let found = only_problem(&doctor.examine(&db.pool()).await, "I8/jobs", Critical);
    assert_eq!(found.items, ["a"]);
    assert_eq!(found.what, "1 jobs whose parts are done and which are not");
    execute(&db, "update public.job set state = 'done' where id = 'a'").await;
    let found = problems(&doctor.examine(&db.pool()).await, Info);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn finished_requests_and_recent_inbox_entries_are_healthy() {
    expect_healthy(
        "insert into postrider.ledger (scope, key, digest, state, created_at, finished_at)
         values ('orders', 'k', decode(repeat('00', 32), 'hex'), 'succeeded', now() - interval '9 days', now());
         insert into postrider.inbox (consumer, message_id, received_at) values ('c', 'm', now() - interval '29 days');
         insert into postrider.leader (name, holder, term, until) values ('l', gen_random_uuid(), 1, now() + interval '5 seconds')",
    )
    .await;
}
