//! A work table whose finished rows move to a history.

use std::time::Duration;

use postrider::failure::{Category, Failure};
use postrider::lease::{Claim, Outcome, Queue, Settlement};
use sqlx::Executor;

use crate::support::{database, own_table};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn finished_items_move_to_the_history_and_others_stay() {
    let db = database().await;
    let pool = db.pool();
    own_table::create(&pool).await;
    pool.execute("insert into shop.parcel (weight) values (1), (2), (3), (4)")
        .await
        .unwrap();
    let queue = Queue::new(&own_table::MOVING).unwrap();
    let claim = Claim::new("w", LEASE, 10);
    let mut claimed = queue.claim(&pool, &claim).await.unwrap();
    claimed.sort_by_key(|(lease, _)| lease.id());
    pool.execute("update shop.parcel set lock_token = lock_token + 1 where parcel_id = 4")
        .await
        .unwrap();
    let failure = Failure::with_category("X", Category::System, "x");
    let retry = Outcome::Retry {
        after: Duration::ZERO,
        failure: failure.clone(),
    };
    let dead = Outcome::Dead { failure };
    let outcomes = [Outcome::Done, retry, dead, Outcome::Done];
    let batch = claimed.into_iter().zip(outcomes);
    let batch = batch.map(|((lease, _), outcome)| Settlement::new(lease, outcome));
    let settled = queue.settle(&pool, "w", batch.collect()).await.unwrap();
    assert_eq!((settled.settled, settled.lost.len()), (3, 1));
    let history: Vec<(i64, i32, i32)> =
        sqlx::query_as("select parcel_id, weight, tries from shop.parcel_history")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(history, [(1, 1, 0)]);
    let left: Vec<(i64, String)> =
        sqlx::query_as("select parcel_id, status from shop.parcel order by 1")
            .fetch_all(&pool)
            .await
            .unwrap();
    let states = ["RETRY_WAIT", "DLQ", "RUNNING"].map(str::to_owned);
    assert_eq!(
        left,
        (2..).zip(states).collect::<Vec<_>>(),
        "a stale lease moves nothing"
    );
}
