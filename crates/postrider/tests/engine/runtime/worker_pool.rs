//! Workers share their connections, and one of those listens for all.

use postrider::WorkerPool;
use postrider::wake::Waker;
use postrider_testkit::TestDb;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor};

use super::*;
use crate::support::database;

const KINDS: [&str; 4] = ["a", "b", "c", "d"];

const LISTENERS: &str = "
    select pid from pg_stat_activity where datname = current_database() and query like 'LISTEN%'";

/// One worker per kind.
fn workers(pool: &PgPool, shared: &WorkerPool, options: &WorkerOptions) -> Vec<Running> {
    let worker = |kind: &&str| {
        let handler = Handler::new(|_| async { Ok(Verdict::Done) });
        let worker = worker(pool).options(options.clone()).with_pool(shared);
        Running::start(worker.handle(*kind, handler))
    };
    KINDS.iter().map(worker).collect()
}

async fn fill_each(pool: &PgPool, count: i64) {
    let messages: Vec<Message> = KINDS
        .iter()
        .flat_map(|kind| (0..count).map(|n| Message::new(*kind, &n).unwrap()))
        .collect();
    enqueue_many(&mut pool.acquire().await.unwrap(), &messages)
        .await
        .unwrap();
}

async fn listeners(pool: &PgPool) -> Vec<i32> {
    sqlx::query_scalar(LISTENERS).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn one_connection_listens_for_all_workers_and_is_replaced_when_it_breaks() {
    let db = database().await;
    let pool = db.pool();
    let running = workers(&pool, &WorkerPool::new(&pool), &rarely_polling());
    let waker = Waker::new(pool.clone());
    for _ in 0..2 {
        eventually("one listens", async || {
            let found = listeners(&pool).await.len();
            if found == 1 { Ok(()) } else { Err(found) }
        })
        .await;
        fill_each(&pool, 1).await;
        waker.wake(&OUTBOX);
        empty(&pool).await;
        // Nobody is notified of these, but a new listener polls.
        fill_each(&pool, 1).await;
        let broken: bool = sqlx::query_scalar("select pg_terminate_backend($1)")
            .bind(listeners(&pool).await[0])
            .fetch_one(&pool)
            .await
            .unwrap();
        assert!(broken);
        empty(&pool).await;
    }
    for worker in running {
        worker.stop().await;
    }
}

#[tokio::test]
async fn workers_continue_with_two_shared_connections() {
    let db = database().await;
    let few = PgPoolOptions::new()
        .max_connections(1)
        .connect_with(db.connect_options().application_name("few"))
        .await
        .unwrap();
    let pool = db.pool();
    fill_each(&pool, 2_000).await;
    let running = workers(&few, &WorkerPool::with_max_connections(&few, 2), &options());
    empty(&pool).await;
    let open: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'few'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert!(open <= 3, "{open} connections");
    for worker in running {
        worker.stop().await;
    }
}

/// A role with a connection limit, and a pool of one of its connections.
async fn short_of_connections(db: &TestDb, most: i32) -> PgPool {
    let role = format!("short_{}", rand::random::<u32>());
    let statement = format!(
        "create role {role} login connection limit {most}; grant usage on schema postrider to {role};
         grant all on all tables in schema postrider to {role}; grant all on all sequences in schema postrider to {role}"
    );
    db.connect()
        .await
        .execute(AssertSqlSafe(statement))
        .await
        .unwrap();
    PgPoolOptions::new()
        .max_connections(1)
        .connect_with(db.connect_options().username(&role))
        .await
        .unwrap()
}

#[tokio::test]
async fn work_continues_when_the_server_has_few_connections_left() {
    let db = database().await;
    // One for the handlers, one listens, and claims and settlements take turns on the third.
    let short = short_of_connections(&db, 3).await;
    let pool = db.pool();
    fill(&pool, 300).await;
    let tight = WorkerOptions {
        prefetch: 10,
        ..options()
    };
    let handled = Arc::default();
    let running = Running::start(
        worker(&short)
            .options(tight)
            .handle("t", recording(&handled)),
    );
    empty(&pool).await;
    running.stop().await;
    assert_eq!(handled.lock().unwrap().len(), 300);
}

#[tokio::test]
async fn dropping_a_worker_stops_all_claims() {
    let db = database().await;
    let pool = db.pool();
    let its = PgPoolOptions::new()
        .max_connections(4)
        .connect_with(db.connect_options().application_name("dropped"))
        .await
        .unwrap();
    fill(&pool, 5_000).await;
    let handler = Handler::new(|_| async { Ok(Verdict::Done) });
    let run = worker(&its)
        .handle("t", handler)
        .run(CancellationToken::new());
    let some_done = async { while states(&pool).await.get("ready") == Some(&5_000) {} };
    tokio::select! {
        ended = run => panic!("{ended:?}"),
        () = some_done => {}
    }
    drop(its);
    eventually("its connections are gone", async || {
        let left: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where application_name = 'dropped'",
        )
        .fetch_one(&pool)
        .await
        .unwrap();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}
