//! The fast path finishes items without a lease, and never blocks the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider::Error;

use super::*;
use crate::support::database;

#[tokio::test]
async fn items_finished_by_the_fast_path_are_not_handled() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 100).await;
    let handled = Arc::default();
    let ahead = pool.clone();
    let worker = worker(&pool)
        .handle("t", recording(&handled))
        .before_claim(move || {
            let pool = ahead.clone();
            async move {
                let sql = "delete from postrider.outbox where state = 'ready' and payload::text::int % 2 = 0";
                let done = sqlx::query(sql).execute(&pool).await?;
                Ok(done.rows_affected())
            }
        });
    let running = Running::start(worker);
    empty(&pool).await;
    running.stop().await;
    let mut handled = handled.lock().unwrap().clone();
    handled.sort_unstable();
    let odd: Vec<i64> = handled.iter().copied().filter(|n| n % 2 == 1).collect();
    assert_eq!((handled.len(), &handled), (50, &odd));
}

#[tokio::test]
async fn an_error_or_panic_in_the_fast_path_does_not_block_claims() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 10).await;
    let (handled, calls) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let worker = worker(&pool)
        .handle("t", recording(&handled))
        .before_claim(move || {
            let call = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(call > 0, "on purpose");
                Err(Error::Stopped("on purpose"))
            }
        });
    let running = Running::start(worker);
    empty(&pool).await;
    running.stop().await;
    assert_eq!(handled.lock().unwrap().len(), 10);
    assert!(calls.load(Ordering::SeqCst) > 0);
}
