//! Dead letters: seen across tables, grouped by cause, revived at a pace.

use std::time::Duration;

use postrider_engine::dead_letter::{DeadLetters, Filter, Pace};
use postrider_engine::lease::{Operator, Queue};
use postrider_engine::outbox::OUTBOX;
use sqlx::{Executor, PgPool};

use crate::support::{database, own_table};

/// 60 dead in the outbox with two causes, 5 in another table.
async fn fill(pool: &PgPool) {
    pool.execute(
        "insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_message)
         select 't' || n % 2, to_json(n), 'dead', now() - make_interval(secs => n), 3,
                case when n <= 40 then 'TIMEOUT' else 'HTTP' end,
                case when n <= 40 then 'no answer from 10.0.0.' || n || ' in ' || n || ' ms' else 'order ' || n || ' refused' end
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

fn at_once() -> Pace {
    Pace {
        batch: 7,
        pause: Duration::ZERO,
        ..Pace::default()
    }
}

#[tokio::test]
async fn a_listing_goes_through_all_tables_page_by_page() {
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
    let own = Filter {
        work_table: Some("shop.parcel".into()),
        ..Filter::default()
    };
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
async fn failures_are_grouped_by_cause_not_by_text() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let outbox = Filter {
        work_table: Some("postrider.outbox".into()),
        kind: Some("t0".into()),
        ..Filter::default()
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
    let signature = letters().groups(&pool, &Filter::default()).await.unwrap()[0]
        .signature
        .clone();
    let group = Filter {
        signature: Some(signature),
        ..Filter::default()
    };
    let total = letters()
        .redrive(&pool, &Operator::new("ada"), &group, at_once())
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
async fn a_redrive_takes_no_more_than_it_was_allowed() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let few = Pace {
        most: 10,
        ..at_once()
    };
    let total = letters()
        .redrive(&pool, &Operator::new("ada"), &Filter::default(), few)
        .await
        .unwrap();
    assert_eq!(total.changed, 10);
}

#[tokio::test]
async fn one_whose_dedupe_key_is_in_use_again_is_skipped_alone() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    pool.execute("update postrider.outbox set dedupe_key = 'k' where id = 7")
        .await
        .unwrap();
    pool.execute("select postrider.enqueue((select topic from postrider.outbox where id = 7), '1', dedupe_key => 'k')").await.unwrap();
    let total = letters()
        .redrive(&pool, &Operator::new("ada"), &Filter::default(), at_once())
        .await
        .unwrap();
    assert_eq!((total.changed, total.skipped), (64, 1));
}

#[tokio::test]
async fn what_is_archived_is_forgotten_in_time() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool).await;
    let outbox = Filter {
        work_table: Some("postrider.outbox".into()),
        ..Filter::default()
    };
    let total = letters()
        .archive(&pool, &Operator::new("ada"), &outbox, at_once())
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
async fn one_letter_shows_its_row_and_its_attempts() {
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
        "only tables that were described"
    );
    assert!(Queue::new(&own_table::PARCEL).is_ok());
}
