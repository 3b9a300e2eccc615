//! Dead letters of a table in another database: one listing, one operation, each changed where it is.

use postrider::dead_letter::{Action, DeadLetters, Filter, OperationRequest};
use postrider::lease::Operator;
use postrider::outbox::OUTBOX;
use postrider_testkit::TestDb;
use sqlx::{Executor, PgPool};

use crate::support::{database, own_table};

struct Databases {
    _dbs: [TestDb; 2],
    local: PgPool,
    away: PgPool,
    letters: DeadLetters,
}

/// 30 local dead letters and 20 remote ones, interleaved; a local table of the same name isn't included.
async fn databases() -> Databases {
    let dbs = [database().await, database().await];
    let [local, away] = dbs.each_ref().map(TestDb::pool);
    local.execute(
        "insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_message, cause)
         select 't', to_json(n), 'dead', now() - make_interval(secs => 2 * n), 3, 'HTTP', 'refused', 'HTTP: refused'
         from generate_series(1, 30) n",
    )
    .await
    .unwrap();
    for (pool, many) in [(&local, 1), (&away, 20)] {
        own_table::create(pool).await;
        sqlx::query(
            "insert into shop.parcel (weight, status, closed_at, error_code)
             select n, 'DLQ', now() - make_interval(secs => 2 * n + 1), 'LOST' from generate_series(1, $1) n",
        )
        .bind(many)
        .execute(pool)
        .await
        .unwrap();
    }
    let letters = DeadLetters::new([&OUTBOX, &own_table::PARCEL]).unwrap();
    Databases {
        letters: letters.with_remote(own_table::PARCEL.name, away.clone()),
        _dbs: dbs,
        local,
        away,
    }
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

const DEAD_PARCELS: &str = "select count(*) from shop.parcel where status = 'DLQ'";

#[tokio::test]
async fn a_listing_covers_all_databases_newest_first() {
    let Databases { local, letters, .. } = &databases().await;
    let all = Filter::default();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = letters.list(local, &all, after.as_ref(), 7).await.unwrap();
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = Some(last.cursor());
        seen.extend(page);
    }
    assert!(seen.is_sorted_by(|a, b| a.died_at > b.died_at), "{seen:?}");
    let of = |table| seen.iter().filter(|l| l.work_table == table).count();
    assert_eq!((of("postrider.outbox"), of("shop.parcel")), (30, 20));
    assert_eq!(letters.count(local, &all, 1_000).await.unwrap(), 50);
    assert_eq!(letters.count(local, &all, 45).await.unwrap(), 45);
    let groups = letters.groups(local, &all).await.unwrap();
    let counts: Vec<_> = groups.iter().map(|g| (&*g.work_table, g.count)).collect();
    assert_eq!(counts, [("postrider.outbox", 30), ("shop.parcel", 20)]);
}

#[tokio::test]
async fn an_operation_changes_items_in_every_database_and_counts_all() {
    let Databases {
        local,
        away,
        letters,
        ..
    } = &databases().await;
    let operator = Operator::new("ada");
    let few = OperationRequest {
        limit: Some(9),
        ..OperationRequest::new(Action::Redrive, Filter::default())
    };
    let total = letters.execute(local, &operator, &few).await.unwrap();
    assert_eq!((total.changed, total.skipped), (9, 0));
    // The nine newest, interleaved: five local, four remote.
    assert_eq!(number(away, DEAD_PARCELS).await, 16);
    let all = OperationRequest::new(Action::Archive, Filter::default());
    let total = letters.execute(local, &operator, &all).await.unwrap();
    assert_eq!((total.changed, total.skipped), (41, 0));
    assert_eq!(number(away, DEAD_PARCELS).await, 0);
    assert_eq!(number(local, DEAD_PARCELS).await, 1, "it wasn't included");
    let orders = letters.operations(local, None, 10).await.unwrap();
    assert!(orders.iter().all(|order| order.finished_at.is_some()));
    let audited = "select coalesce(sum(cardinality(items)), 0)::bigint from postrider.audit";
    assert_eq!(number(away, audited).await, 20);
    assert_eq!(number(local, audited).await, 30);
}

#[tokio::test]
async fn a_remote_dead_letter_shows_its_remote_history() {
    let Databases {
        local,
        away,
        letters,
        ..
    } = &databases().await;
    let id = number(away, "select max(parcel_id) from shop.parcel").await;
    let one = Filter {
        ids: Some(vec![id]),
        ..Filter::table("shop.parcel")
    };
    let order = OperationRequest::new(Action::Redrive, one);
    let operator = Operator::new("ada");
    letters.execute(local, &operator, &order).await.unwrap();
    let shown = letters.show(local, "shop.parcel", id).await.unwrap();
    let shown = shown.unwrap();
    assert!(!shown.dead);
    assert_eq!(shown.audit.len(), 1);
}

#[tokio::test]
async fn an_unavailable_remote_database_does_not_hide_other_dead_letters() {
    let Databases {
        local,
        away,
        letters,
        ..
    } = &databases().await;
    away.close().await;
    let here = Filter::table("postrider.outbox");
    assert_eq!(
        letters.list(local, &here, None, 50).await.unwrap().len(),
        30
    );
    let everywhere = letters.list(local, &Filter::default(), None, 50).await;
    assert!(everywhere.is_err(), "an incomplete listing is an error");
}
