//! A message delivered twice has one effect.

use std::time::Duration;

use postrider::inbox::{self, Inbox, InboxError};
use sqlx::PgPool;

use crate::support::{database, waits_for_a_lock};

fn wallet() -> Inbox {
    Inbox::new("wallet")
        .unwrap()
        .lock_timeout(Duration::from_secs(60))
}

async fn first_time(pool: &PgPool, consumer: &Inbox, id: &str) -> bool {
    let mut tx = pool.begin().await.unwrap();
    let first = consumer.first_time(&mut tx, id).await.unwrap();
    tx.commit().await.unwrap();
    first
}

#[tokio::test]
async fn a_message_is_new_once_per_consumer() {
    let db = database().await;
    let mailer = Inbox::new("mailer").unwrap();
    let answers = [
        first_time(&db.pool(), &wallet(), "m").await,
        first_time(&db.pool(), &wallet(), "m").await,
        first_time(&db.pool(), &mailer, "m").await,
        first_time(&db.pool(), &wallet(), "n").await,
    ];
    assert_eq!(answers, [true, false, true, true]);
}

#[tokio::test]
async fn a_crash_before_the_commit_leaves_the_message_new() {
    let db = database().await;
    let mut tx = db.pool().begin().await.unwrap();
    assert!(wallet().first_time(&mut tx, "m").await.unwrap());
    let backend: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    sqlx::query("select pg_terminate_backend($1)")
        .bind(backend)
        .execute(&db.pool())
        .await
        .unwrap();
    assert!(tx.commit().await.is_err());
    assert!(first_time(&db.pool(), &wallet(), "m").await);
}

#[tokio::test]
async fn a_concurrent_duplicate_waits_for_the_first() {
    for commit in [true, false] {
        let db = database().await;
        let mut first = db.pool().begin().await.unwrap();
        assert!(wallet().first_time(&mut first, "m").await.unwrap());
        let pool = db.pool();
        let second = tokio::spawn(async move { first_time(&pool, &wallet(), "m").await });
        waits_for_a_lock(&db.pool()).await;
        if commit {
            first.commit().await.unwrap();
        } else {
            first.rollback().await.unwrap();
        }
        assert_eq!(second.await.unwrap(), !commit);
    }
}

#[tokio::test]
async fn a_duplicate_that_waits_too_long_is_busy() {
    let db = database().await;
    let mut first = db.pool().begin().await.unwrap();
    assert!(wallet().first_time(&mut first, "m").await.unwrap());
    let impatient = wallet().lock_timeout(Duration::from_millis(20));
    let mut second = db.pool().begin().await.unwrap();
    let answer = impatient.first_time(&mut second, "m").await;
    assert!(matches!(answer, Err(InboxError::Busy)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixty_four_deliveries_at_once_one_has_its_effect() {
    let db = database().await;
    sqlx::query("create table effect ()")
        .execute(&db.pool())
        .await
        .unwrap();
    let deliveries = (0..64).map(|_| {
        let pool = db.pool();
        tokio::spawn(async move {
            let mut tx = pool.begin().await.unwrap();
            if wallet().first_time(&mut tx, "m").await.unwrap() {
                sqlx::query("insert into effect default values")
                    .execute(&mut *tx)
                    .await
                    .unwrap();
            }
            tx.commit().await.unwrap();
        })
    });
    for delivery in deliveries.collect::<Vec<_>>() {
        delivery.await.unwrap();
    }
    let effects: i64 = sqlx::query_scalar("select count(*) from effect")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    assert_eq!(effects, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_answer_in_order_and_never_deadlock() {
    let db = database().await;
    let mut tx = db.pool().begin().await.unwrap();
    let answers = wallet()
        .first_times(&mut tx, &["a", "b", "a"])
        .await
        .unwrap();
    assert_eq!(answers, [true, true, false]);
    tx.commit().await.unwrap();

    let batches = (0..8).map(|n| {
        let pool = db.pool();
        tokio::spawn(async move {
            let mut ids: Vec<String> = (0..200).map(|id| format!("m{id}")).collect();
            if n % 2 == 0 {
                ids.reverse();
            }
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let mut tx = pool.begin().await.unwrap();
            let answers = wallet().first_times(&mut tx, &ids).await.unwrap();
            tx.commit().await.unwrap();
            answers.into_iter().filter(|first| *first).count()
        })
    });
    let mut new = 0;
    for batch in batches.collect::<Vec<_>>() {
        new += batch.await.unwrap();
    }
    assert_eq!(new, 200);
}

#[tokio::test]
async fn only_ids_older_than_the_retention_are_deleted() {
    let db = database().await;
    sqlx::query(
        "insert into postrider.inbox (consumer, message_id, received_at)
         select 'wallet', n::text, now() - case when n <= 12000 then interval '31 days' else interval '29 days' end
         from generate_series(1, 12100) n",
    )
    .execute(&db.pool())
    .await
    .unwrap();
    assert_eq!(
        inbox::forget(&db.pool(), inbox::RETENTION).await.unwrap(),
        12_000
    );
    assert_eq!(
        inbox::forget(&db.pool(), inbox::RETENTION).await.unwrap(),
        0
    );
    assert!(
        inbox::forget(&db.pool(), Duration::from_secs(3600))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn unstorable_names_are_rejected() {
    let db = database().await;
    assert!(Inbox::new("").is_err() && Inbox::new("c".repeat(101)).is_err());
    let mut connection = db.pool().acquire().await.unwrap();
    for id in ["", "a\0", &"m".repeat(256)] {
        assert!(matches!(
            wallet().first_time(&mut connection, id).await,
            Err(InboxError::Other(_))
        ));
        assert!(matches!(
            wallet().first_times(&mut connection, &["ok", id]).await,
            Err(InboxError::Other(_))
        ));
    }
}
