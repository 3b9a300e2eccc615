//! I1 to I4: items of a work table.

use postrider::outbox::OUTBOX;
use postrider::transport::DELIVERIES;
use postrider_inspect::doctor::{Doctor, Limits, Severity::*};

use super::{
    examine, execute, expect_finding, expect_healthy, healthy_database, limits, only_problem,
};

#[tokio::test]
async fn waiting_items_are_healthy() {
    expect_healthy(
        "insert into postrider.outbox (topic, payload) select 't', '{}' from generate_series(1, 50);
         insert into postrider.outbox (topic, payload, due) values ('t', '{}', now() + interval '1 month');
         select postrider.enqueue('t', ordering_key => 'k'), postrider.enqueue('t', ordering_key => 'k');
         insert into postrider.outbox (topic, payload, state, lease_until, fence, lease_owner)
         select 't', '{}', 'leased', now() + interval '1 minute', 7, 'w' from generate_series(1, 50)",
    )
    .await;
}

#[tokio::test]
async fn a_finished_item_in_an_unfinished_state_is_reported() {
    let found = expect_finding(
        "alter table postrider.outbox drop constraint outbox_finished_has_time;
         insert into postrider.outbox (topic, payload, finished_at) values ('t', '{}', now())",
        "I1/state",
        Critical,
    )
    .await;
    assert_eq!(found.items, ["1"]);
    assert_eq!(found.subject.as_deref(), Some("postrider.outbox"));
}

#[tokio::test]
async fn an_item_in_a_final_state_without_a_finish_time_is_reported() {
    expect_finding(
        "alter table postrider.outbox drop constraint outbox_finished_has_time;
         insert into postrider.outbox (topic, payload, state) values ('t', '{}', 'done')",
        "I1/state",
        Critical,
    )
    .await;
}

#[tokio::test]
async fn an_item_without_a_due_time_is_reported() {
    expect_finding(
        "alter table postrider.outbox alter due drop not null;
         insert into postrider.outbox (topic, payload, due) values ('t', '{}', null)",
        "I1/due",
        Critical,
    )
    .await;
}

#[tokio::test]
async fn an_ordering_key_without_a_first_item_is_reported() {
    let found = expect_finding(
        "select postrider.enqueue('t', ordering_key => 'well'), postrider.enqueue('t', ordering_key => 'well');
         insert into postrider.outbox (topic, payload, ordering_key, due, parked)
         select 't', '{}', 'stuck', 'infinity', 'behind' from generate_series(1, 3)",
        "I1/stranded-keys",
        Critical,
    )
    .await;
    assert_eq!(found.items, ["stuck"]);
}

#[tokio::test]
async fn an_item_parked_for_long_is_reported() {
    expect_finding(
        "insert into postrider.outbox (topic, payload, due, parked) values ('t', '{}', 'infinity', 'wait for Ann');
         insert into postrider.audit (at, actor, action, work_table, items)
         values (now() - interval '3 days', 'bob', 'park', 'postrider.outbox', '{1}')",
        "I1/parked",
        Warning,
    )
    .await;
}

#[tokio::test]
async fn an_item_parked_today_is_healthy() {
    expect_healthy(
        "insert into postrider.outbox (topic, payload, due, parked) values ('t', '{}', 'infinity', 'wait for Ann');
         insert into postrider.audit (actor, action, work_table, items)
         values ('bob', 'park', 'postrider.outbox', '{1}')",
    )
    .await;
}

#[tokio::test]
async fn a_kind_without_a_handler_is_listed() {
    let found = expect_finding(
        "update postrider.worker set kinds = '{mail}';
         insert into postrider.outbox (topic, payload, due)
         values ('mail', '{}', now() - interval '5 minutes'), ('fax', '{}', now() - interval '5 minutes')",
        "I1/unhandled",
        Warning,
    )
    .await;
    assert_eq!(found.items, ["fax"]);
    assert!(
        found.what.contains("none of the 1 live workers"),
        "{found:?}"
    );
}

#[tokio::test]
async fn due_items_without_a_live_worker_are_reported() {
    let found = expect_finding(
        "delete from postrider.worker;
         insert into postrider.outbox (topic, payload, due) values ('t', '{}', now() - interval '2 hours')",
        "I1/unhandled",
        Warning,
    )
    .await;
    assert!(found.what.contains("no worker is alive"), "{found:?}");
}

#[tokio::test]
async fn a_message_without_a_subscription_is_reported() {
    let found = expect_finding(
        "insert into postrider.outbox (topic, payload, state, error_code, due)
         select 'lonely', '{}', 'waiting', 'UNROUTABLE', now() + interval '30 seconds' from generate_series(1, 3)",
        "I1/unroutable",
        Warning,
    )
    .await;
    assert_eq!(found.items, ["lonely: 3"]);
}

#[tokio::test]
async fn a_table_claimed_by_kind_is_read_by_kind() {
    let db = healthy_database().await;
    // A backlog of one group, and one broken item of each of two others behind it.
    execute(
        &db,
        "insert into postrider.delivery (segment, message_id, consumer_group, topic, losses)
         select 1, gen_random_uuid(), g, 't', (g <> 'busy')::int * 10
         from unnest(array_fill('busy'::text, array[100]) || '{early, late}') g;
         update postrider.delivery set due = due - interval '1 second' where consumer_group = 'busy'",
    )
    .await;
    let few = Limits {
        window: 50,
        ..limits()
    };
    let doctor = Doctor::new([&DELIVERIES]).limits(few);
    let found = only_problem(&doctor.examine(&db.pool()).await, "I3/losses", Warning);
    assert_eq!(found.items, ["101", "102"]);
}

#[tokio::test]
async fn overdue_items_are_reported() {
    let found = expect_finding(
        "insert into postrider.outbox (topic, payload, due) values ('t', '{}', now() - interval '3 hours')",
        "I1/overdue",
        Warning,
    )
    .await;
    assert!(found.what.contains("3 h"), "{found:?}");
}

#[tokio::test]
async fn an_inconsistent_lease_is_reported() {
    for half in [
        "alter table postrider.outbox drop constraint outbox_leased_has_lease;
         insert into postrider.outbox (topic, payload, state) values ('t', '{}', 'leased')",
        "alter table postrider.outbox drop constraint outbox_leased_has_lease;
         insert into postrider.outbox (topic, payload, fence) values ('t', '{}', 7)",
        "alter table postrider.outbox drop constraint outbox_leased_has_lease;
         insert into postrider.outbox (topic, payload, state, lease_until, fence)
         values ('t', '{}', 'leased', now() + interval '1 minute', 7)",
    ] {
        expect_finding(half, "I2/lease", Critical).await;
    }
}

#[tokio::test]
async fn a_fence_with_two_owners_is_reported() {
    expect_finding(
        "insert into postrider.outbox (topic, payload, state, lease_until, fence, lease_owner)
         select 't', '{}', 'leased', now() + interval '1 minute', 7, 'w' || n from generate_series(1, 2) n",
        "I2/shared-fence",
        Critical,
    )
    .await;
}

#[tokio::test]
async fn an_unrescued_lease_is_reported_and_becomes_critical() {
    expect_finding(
        "insert into postrider.outbox (topic, payload, state, lease_until, fence, lease_owner)
         values ('t', '{}', 'leased', now() - interval '5 minutes', 7, 'w')",
        "I3/expired-leases",
        Warning,
    )
    .await;
    expect_finding(
        "insert into postrider.outbox (topic, payload, state, lease_until, fence, lease_owner)
         values ('t', '{}', 'leased', now() - interval '5 hours', 7, 'w')",
        "I3/expired-leases",
        Critical,
    )
    .await;
}

#[tokio::test]
async fn a_lease_of_more_than_a_day_is_reported() {
    expect_finding(
        "insert into postrider.outbox (topic, payload, state, lease_until, fence, lease_owner)
         values ('t', '{}', 'leased', 'infinity', 7, 'w')",
        "I3/endless-leases",
        Warning,
    )
    .await;
}

#[tokio::test]
async fn an_item_past_its_maximum_losses_is_reported() {
    expect_finding(
        "insert into postrider.outbox (topic, payload, losses) values ('t', '{}', 10), ('t', '{}', 9)",
        "I3/losses",
        Warning,
    )
    .await;
}

#[tokio::test]
async fn more_attempts_than_the_known_maximum_are_reported() {
    let db = healthy_database().await;
    execute(
        &db,
        "insert into postrider.outbox (topic, payload, state, attempts) values ('t', '{}', 'waiting', 5), ('t', '{}', 'waiting', 6)",
    )
    .await;
    let doctor = Doctor::default().bounded_table(&OUTBOX, 5).limits(limits());
    let found = only_problem(&doctor.examine(&db.pool()).await, "I4/attempts", Critical);
    assert_eq!(found.items, ["2"]);
}

#[tokio::test]
async fn attempts_missing_from_the_attempt_log_are_reported() {
    let found = expect_finding(
        "insert into postrider.outbox (topic, payload, state, attempts)
         values ('t', '{}', 'waiting', 2), ('t', '{}', 'waiting', 1), ('t', '{}', 'waiting', 3);
         insert into postrider.attempt (work_table, item_id, attempt, worker, started_at, outcome, code)
         values ('postrider.outbox', 1, 1, 'w', now(), 'retry', 'X'), ('postrider.outbox', 2, 1, 'w', now(), 'retry', 'X')",
        "I4/journal",
        Warning,
    )
    .await;
    assert_eq!(
        found.items,
        ["1"],
        "the third has no journal left to compare with"
    );
}

#[tokio::test]
async fn a_truncated_count_says_at_least_and_lists_a_sample() {
    let db = healthy_database().await;
    execute(
        &db,
        "insert into postrider.outbox (topic, payload, losses) select 't', '{}', 10 from generate_series(1, 60)",
    )
    .await;
    let limits = Limits {
        window: 50,
        sample: 3,
        ..limits()
    };
    let found = only_problem(&examine(&db, limits).await, "I3/losses", Warning);
    assert!(found.what.starts_with("at least 50 items"), "{found:?}");
    assert_eq!(found.items.len(), 3);
    let found = only_problem(&examine(&db, super::limits()).await, "I3/losses", Warning);
    assert!(found.what.starts_with("60 items"), "{found:?}");
}
