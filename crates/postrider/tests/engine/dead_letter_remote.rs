//! Dead letters of a table that is in another database: one listing, one order, and each changed where it is.

use postrider::dead_letter::{Action, DeadLetters, Filter, Order};
use postrider::lease::Operator;
use postrider::outbox::OUTBOX;
use postrider_testkit::TestDb;
use sqlx::{Executor, PgPool};

use crate::support::{database, own_table};

struct Places {
    _dbs: [TestDb; 2],
    home: PgPool,
    away: PgPool,
    letters: DeadLetters,
}

/// 30 dead at home, 20 elsewhere, in turn; a table of the same name at home is not meant.
async fn places() -> Places {
    let dbs = [database().await, database().await];
    let [home, away] = dbs.each_ref().map(TestDb::pool);
    home.execute(
        "insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_message, cause)
         select 't', to_json(n), 'dead', now() - make_interval(secs => 2 * n), 3, 'HTTP', 'refused', 'HTTP: refused'
         from generate_series(1, 30) n",
    )
    .await
    .unwrap();
    for (pool, many) in [(&home, 1), (&away, 20)] {
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
    Places {
        letters: letters.with_remote(own_table::PARCEL.name, away.clone()),
        _dbs: dbs,
        home,
        away,
    }
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

const DEAD_PARCELS: &str = "select count(*) from shop.parcel where status = 'DLQ'";

#[tokio::test]
async fn a_listing_goes_through_all_databases_page_by_page_the_newest_first() {
    let Places { home, letters, .. } = &places().await;
    let all = Filter::default();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = letters.list(home, &all, after.as_ref(), 7).await.unwrap();
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = Some(last.cursor());
        seen.extend(page);
    }
    assert!(seen.is_sorted_by(|a, b| a.died_at > b.died_at), "{seen:?}");
    let of = |table| seen.iter().filter(|l| l.work_table == table).count();
    assert_eq!((of("postrider.outbox"), of("shop.parcel")), (30, 20));
    assert_eq!(letters.count(home, &all, 1_000).await.unwrap(), 50);
    assert_eq!(letters.count(home, &all, 45).await.unwrap(), 45);
    let groups = letters.groups(home, &all).await.unwrap();
    let counts: Vec<_> = groups.iter().map(|g| (&*g.work_table, g.count)).collect();
    assert_eq!(counts, [("postrider.outbox", 30), ("shop.parcel", 20)]);
}

#[tokio::test]
async fn an_order_changes_each_where_it_is_and_counts_all() {
    let Places {
        home,
        away,
        letters,
        ..
    } = &places().await;
    let operator = Operator::new("ada");
    let few = Order {
        most: Some(9),
        ..Order::new(Action::Redrive, Filter::default())
    };
    let total = letters.carry_out(home, &operator, &few).await.unwrap();
    assert_eq!((total.changed, total.skipped), (9, 0));
    // The nine newest, in turn: five at home, four elsewhere.
    assert_eq!(number(away, DEAD_PARCELS).await, 16);
    let all = Order::new(Action::Archive, Filter::default());
    let total = letters.carry_out(home, &operator, &all).await.unwrap();
    assert_eq!((total.changed, total.skipped), (41, 0));
    assert_eq!(number(away, DEAD_PARCELS).await, 0);
    assert_eq!(number(home, DEAD_PARCELS).await, 1, "it was not meant");
    let orders = letters.operations(home, None, 10).await.unwrap();
    assert!(orders.iter().all(|order| order.finished_at.is_some()));
    let audited = "select coalesce(sum(cardinality(items)), 0)::bigint from postrider.audit";
    assert_eq!(number(away, audited).await, 20);
    assert_eq!(number(home, audited).await, 30);
}

#[tokio::test]
async fn one_that_is_elsewhere_shows_what_was_done_to_it_there() {
    let Places {
        home,
        away,
        letters,
        ..
    } = &places().await;
    let id = number(away, "select max(parcel_id) from shop.parcel").await;
    let one = Filter {
        ids: Some(vec![id]),
        ..Filter::of("shop.parcel")
    };
    let order = Order::new(Action::Redrive, one);
    let operator = Operator::new("ada");
    letters.carry_out(home, &operator, &order).await.unwrap();
    let shown = letters.show(home, "shop.parcel", id).await.unwrap();
    let shown = shown.unwrap();
    assert!(!shown.dead);
    assert_eq!(shown.audit.len(), 1);
}

#[tokio::test]
async fn a_database_that_is_away_hides_nothing_of_the_others() {
    let Places {
        home,
        away,
        letters,
        ..
    } = &places().await;
    away.close().await;
    let here = Filter::of("postrider.outbox");
    assert_eq!(letters.list(home, &here, None, 50).await.unwrap().len(), 30);
    let everywhere = letters.list(home, &Filter::default(), None, 50).await;
    assert!(everywhere.is_err(), "never less than there is");
}
