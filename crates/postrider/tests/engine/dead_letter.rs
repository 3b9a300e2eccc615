//! Dead letters: listed across tables, grouped by cause, redriven at a limited rate.

use std::time::Duration;

use postrider::dead_letter::{Action, DeadLetters, Filter, OperationRequest, Step};
use postrider::lease::{Operator, Queue};
use postrider::outbox::OUTBOX;
use postrider::transport::DELIVERIES;
use sqlx::{Executor, PgPool};

use crate::support::{database, own_table};

/// 60 dead in the outbox with two causes, 5 in another table.
async fn fill(pool: &PgPool) {
    pool.execute(
        "insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_message, cause)
         select 't' || n % 2, to_json(n), 'dead', now() - make_interval(secs => n), 3,
                case when n <= 40 then 'TIMEOUT' else 'HTTP' end,
                case when n <= 40 then 'no answer from 10.0.0.' || n || ' in ' || n || ' ms' else 'order ' || n || ' refused' end,
                case when n <= 40 then 'TIMEOUT: no answer from <n> in <n> ms' else 'HTTP: order <n> refused' end
         from generate_series(1, 60) n",
    )
    .await
    .unwrap();
    own_table::create(pool).await;
    pool.execute("insert into shop.parcel (weight, status, closed_at, error_code) select n, 'DLQ', now(), 'LOST' from generate_series(1, 5) n")
        .await
        .unwrap();
}

fn letters() -> DeadLetters {
    DeadLetters::new([&OUTBOX, &own_table::PARCEL]).unwrap()
}

#[tokio::test]
async fn a_listing_covers_all_tables_page_by_page() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = letters()
            .list(&pool, &Filter::default(), after.as_ref(), 10)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.cursor());
        seen.extend(page);
    }
    assert_eq!(seen.len(), 65);
    assert!(seen.is_sorted_by(|a, b| a.died_at >= b.died_at));
    let own = Filter::table("shop.parcel");
    assert_eq!(
        letters().list(&pool, &own, None, 100).await.unwrap().len(),
        5
    );
    let some = Filter {
        kind: Some("t1".into()),
        code: Some("HTTP".into()),
        ..Filter::default()
    };
    assert_eq!(
        letters().list(&pool, &some, None, 100).await.unwrap().len(),
        10
    );
}

#[tokio::test]
async fn dead_letters_are_grouped_by_cause_not_by_text() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let outbox = Filter {
        kind: Some("t0".into()),
        ..Filter::table("postrider.outbox")
    };
    let groups = letters().groups(&pool, &outbox).await.unwrap();
    let counts: Vec<(&str, i64)> = groups
        .iter()
        .map(|group| (group.code.as_str(), group.count))
        .collect();
    assert_eq!(counts, [("TIMEOUT", 20), ("HTTP", 10)]);
}

#[tokio::test]
async fn a_group_can_be_redriven_and_the_rest_stays_dead() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let cause = letters().groups(&pool, &Filter::default()).await.unwrap()[0]
        .cause
        .clone();
    let group = Filter {
        cause: Some(cause),
        ..Filter::default()
    };
    let total = letters()
        .execute(
            &pool,
            &Operator::new("ada"),
            &OperationRequest::new(Action::Redrive, group),
        )
        .await
        .unwrap();
    assert_eq!((total.changed, total.skipped), (40, 0));
    assert_eq!(
        letters()
            .list(&pool, &Filter::default(), None, 100)
            .await
            .unwrap()
            .len(),
        25
    );
    let audited: i64 =
        sqlx::query_scalar("select sum(cardinality(items))::bigint from postrider.audit")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(audited, 40);
}

#[tokio::test]
async fn a_redrive_respects_its_limit() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let few = OperationRequest {
        limit: Some(10),
        ..OperationRequest::new(Action::Redrive, Filter::default())
    };
    let total = letters()
        .execute(&pool, &Operator::new("ada"), &few)
        .await
        .unwrap();
    assert_eq!(total.changed, 10);
}

#[tokio::test]
async fn a_redrive_skips_only_the_item_whose_dedupe_key_is_in_use_again() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    pool.execute("update postrider.outbox set dedupe_key = 'k' where id = 7")
        .await
        .unwrap();
    pool.execute("select postrider.enqueue((select topic from postrider.outbox where id = 7), '1', dedupe_key => 'k')").await.unwrap();
    let total = letters()
        .execute(
            &pool,
            &Operator::new("ada"),
            &OperationRequest::new(Action::Redrive, Filter::default()),
        )
        .await
        .unwrap();
    assert_eq!((total.changed, total.skipped), (64, 1));
}

#[tokio::test]
async fn archived_items_are_pruned_after_their_retention() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let outbox = Filter::table("postrider.outbox");
    let total = letters()
        .execute(
            &pool,
            &Operator::new("ada"),
            &OperationRequest::new(Action::Archive, outbox),
        )
        .await
        .unwrap();
    assert_eq!(total.changed, 60);
    assert_eq!(
        letters()
            .prune_archive(&pool, Duration::from_secs(3600), 1_000)
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        letters()
            .prune_archive(&pool, Duration::ZERO, 1_000)
            .await
            .unwrap(),
        60
    );
}

#[tokio::test]
async fn a_dead_letter_shows_its_row_and_its_attempts() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let detail = letters()
        .show(&pool, "postrider.outbox", 1)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(detail.row["error_code"], "TIMEOUT");
    assert!(
        letters()
            .show(&pool, "postrider.outbox", 9_999)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        letters()
            .show(&pool, "pg_class", 1)
            .await
            .unwrap()
            .is_none(),
        "only registered tables"
    );
    assert!(Queue::new(&own_table::PARCEL).is_ok());
}

/// A hundred thousand in two tables, three in four of one cause, each with its own message.
async fn fill_deep(pool: &PgPool) {
    pool.execute(
        "insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_message, cause)
         select 't' || n % 10, to_json(n), 'dead', now() - make_interval(secs => n), 3, c.code, c.code || ' of ' || n, c.code || ': ' || c.code || ' of <n>'
         from generate_series(1, 60000) n, lateral (select case when n % 4 = 0 then 'RARE' else 'OFTEN' end as code) c;
         insert into postrider.delivery (segment, message_id, consumer_group, topic, state, finished_at, attempts, error_code, error_message, cause)
         select 1, gen_random_uuid(), 'g' || n % 10, 't', 'dead', now() - make_interval(secs => n), 3, c.code, c.code || ' of ' || n, c.code || ': ' || c.code || ' of <n>'
         from generate_series(1, 40000) n, lateral (select case when n % 4 = 0 then 'RARE' else 'OFTEN' end as code) c;
         analyze postrider.outbox, postrider.delivery",
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_page_of_a_hundred_thousand_dead_letters_reads_little_more_than_a_page() {
    let db = database().await;
    let pool = db.pool();
    fill_deep(&pool).await;
    let letters = DeadLetters::new([&OUTBOX, &DELIVERIES]).unwrap();
    let rare = Filter {
        cause: Some("RARE: RARE of <n>".into()),
        ..Filter::default()
    };
    let middle = letters
        .list(&pool, &Filter::default(), None, 500)
        .await
        .unwrap();
    let after = middle.last().unwrap().cursor();
    for (filter, cursor) in [
        (&Filter::default(), None),
        (&rare, None),
        (&rare, Some(&after)),
    ] {
        let plan = letters
            .explain(&pool, filter, cursor, 50)
            .await
            .unwrap()
            .join("\n");
        assert!(!plan.contains("Seq Scan"), "{plan}");
        let read: u64 = plan
            .lines()
            .filter(|line| line.contains("Index") && line.contains("actual"))
            .filter_map(|line| {
                line.split("actual rows=")
                    .nth(1)?
                    .split([' ', '.'])
                    .next()?
                    .parse::<u64>()
                    .ok()
            })
            .sum();
        assert!(read <= 110, "{read} rows for a page of 50:\n{plan}");
    }
    assert_eq!(
        letters.count(&pool, &rare, 1_000_000).await.unwrap(),
        25_000
    );
    assert_eq!(
        letters
            .count(&pool, &Filter::default(), 1_000)
            .await
            .unwrap(),
        1_000
    );
    let groups = letters
        .groups(&pool, &Filter::table("postrider.outbox"))
        .await
        .unwrap();
    assert_eq!(groups.len(), 10 + 5, "a topic has one cause or two");
    assert_eq!(groups.iter().map(|group| group.count).sum::<i64>(), 60_000);
    let text = Filter {
        text: Some("often OF 59999".into()),
        ..Filter::default()
    };
    assert_eq!(letters.list(&pool, &text, None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_operation_respects_its_rate_and_any_process_can_finish_it() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let order = OperationRequest {
        rate: Some(20.0),
        ..OperationRequest::new(Action::Redrive, Filter::table("postrider.outbox"))
    };
    let operator = Operator::new("ada").with_reason("the other side is back");
    let id = letters().submit(&pool, &operator, &order).await.unwrap().id;
    let allowed = "select floor(extract(epoch from clock_timestamp() - created_at) * rate)::bigint - changed from postrider.operation";
    let mut steps = 0;
    loop {
        // Each step could be another process's: only the database remembers anything between two.
        match letters().step(&pool, id).await.unwrap() {
            Step::Finished => break,
            Step::Wait(wait) => tokio::time::sleep(wait).await,
            Step::Progressed => steps += 1,
            Step::Busy => panic!("nobody else is at it"),
        }
        let left: i64 = sqlx::query_scalar(allowed).fetch_one(&pool).await.unwrap();
        assert!(left >= 0, "faster than its rate");
    }
    assert!(steps > 1, "in one step");
    let ended = letters().operation(&pool, id).await.unwrap().unwrap();
    assert_eq!((ended.changed, ended.skipped), (60, 0));
    assert!(ended.finished_at.is_some() && ended.stopped_by.is_none());
    let ready: i64 = sqlx::query_scalar("select count(*) from postrider.outbox where state = 'ready' and attempts = 0 and cause is null and finished_at is null")
        .fetch_one(&pool).await.unwrap();
    assert_eq!(ready, 60, "with fresh attempts");
    let audited: Vec<(String, Option<String>, i64)> = sqlx::query_as(
        "select actor, reason, sum(cardinality(items))::bigint from postrider.audit group by 1, 2",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(
        audited,
        [(
            "ada".to_owned(),
            Some("the other side is back".to_owned()),
            60
        )]
    );
}

#[tokio::test]
async fn a_stopped_operation_leaves_the_rest_dead() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let order = OperationRequest {
        rate: Some(0.001),
        ..OperationRequest::new(Action::Redrive, Filter::default())
    };
    let id = letters()
        .submit(&pool, &Operator::new("ada"), &order)
        .await
        .unwrap()
        .id;
    assert!(matches!(
        letters().step(&pool, id).await.unwrap(),
        Step::Wait(_)
    ));
    assert!(
        letters()
            .stop(&pool, &Operator::new("bob"), id)
            .await
            .unwrap()
    );
    assert!(
        !letters()
            .stop(&pool, &Operator::new("bob"), id)
            .await
            .unwrap()
    );
    assert_eq!(letters().step(&pool, id).await.unwrap(), Step::Finished);
    assert_eq!(
        letters()
            .count(&pool, &Filter::default(), 100)
            .await
            .unwrap(),
        65
    );
    assert!(letters().open_operations(&pool).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_operation_excludes_items_that_die_later() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let order = OperationRequest::new(Action::Redrive, Filter::table("postrider.outbox"));
    let id = letters()
        .submit(&pool, &Operator::new("ada"), &order)
        .await
        .unwrap()
        .id;
    pool.execute("insert into postrider.outbox (topic, payload, state, finished_at, error_code, cause) values ('t', '1', 'dead', clock_timestamp(), 'X', 'X')")
        .await
        .unwrap();
    while letters().step(&pool, id).await.unwrap() != Step::Finished {}
    assert_eq!(
        letters()
            .count(&pool, &Filter::table("postrider.outbox"), 100)
            .await
            .unwrap(),
        1
    );
}

#[tokio::test]
async fn a_guarded_table_is_redriven_only_when_confirmed_and_allowed_by_its_guard() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    pool.execute("create function shop.fresh(ids bigint[]) returns bigint[] language sql as 'select array_agg(i) from unnest(ids) i where i <> 2'")
        .await
        .unwrap();
    let guarded = letters().guard("shop.parcel", "shop.fresh");
    let mut order = OperationRequest::new(Action::Redrive, Filter::table("shop.parcel"));
    let operator = Operator::new("ada");
    let total = guarded.execute(&pool, &operator, &order).await.unwrap();
    assert_eq!((total.changed, total.skipped), (0, 5), "not confirmed");
    order.confirmed = true;
    let total = guarded.execute(&pool, &operator, &order).await.unwrap();
    assert_eq!((total.changed, total.skipped), (4, 1));
}
