//! Enqueued with the caller's transaction, once, in order.

use std::sync::Arc;
use std::time::Duration;

use postrider::Error;
use postrider::lease::{Claim, Item, Lease, Outcome, Queue, Settlement};
use postrider::outbox::{
    COPY_FROM, Enqueuer, EnqueuerOptions, MAX_PAYLOAD, Message, OUTBOX, enqueue, enqueue_many,
};
use serde_json::value::RawValue;
use sqlx::{AssertSqlSafe, Executor, PgPool};

use crate::support::database;

const LEASE: Duration = Duration::from_secs(60);

fn message(n: i64) -> Message {
    Message::new(
        "t",
        &serde_json::json!({"n": n, "text": "tab\t back\\slash \"quote\" \n é €"}),
    )
    .unwrap()
}

fn keyed(key: &str, n: i64) -> Message {
    Message::new("t", &n).unwrap().ordering_key(key).unwrap()
}

async fn count(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from postrider.outbox")
        .fetch_one(pool)
        .await
        .unwrap()
}

async fn claim(pool: &PgPool) -> Vec<(Lease, Item)> {
    Queue::new(&OUTBOX)
        .unwrap()
        .claim(pool, &Claim::new("w", LEASE, 100))
        .await
        .unwrap()
}

async fn settle(pool: &PgPool, lease: Lease, outcome: Outcome) -> Vec<String> {
    let queue = Queue::new(&OUTBOX).unwrap();
    queue
        .settle(pool, "w", vec![Settlement::new(lease, outcome)])
        .await
        .unwrap()
        .busy_keys
}

#[tokio::test]
async fn a_message_exists_only_if_its_transaction_commits() {
    let db = database().await;
    let pool = db.pool();
    let mut tx = pool.begin().await.unwrap();
    enqueue(&mut tx, &message(1)).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(count(&pool).await, 0);
    let mut tx = pool.begin().await.unwrap();
    enqueue(&mut tx, &message(1)).await.unwrap();
    assert_eq!(count(&pool).await, 0, "not before the commit");
    tx.commit().await.unwrap();
    assert_eq!(count(&pool).await, 1);
}

#[tokio::test]
async fn all_message_attributes_reach_the_handler() {
    let db = database().await;
    let pool = db.pool();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sent = message(7)
        .headers(&serde_json::json!({"h": "1"}))
        .unwrap()
        .trace(trace)
        .unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let receipt = enqueue(&mut connection, &sent).await.unwrap();
    enqueue_many(&mut connection, std::slice::from_ref(&sent))
        .await
        .unwrap();
    let copied = vec![sent; COPY_FROM];
    enqueue_many(&mut connection, &copied).await.unwrap();
    assert_eq!(count(&pool).await, i64::try_from(COPY_FROM).unwrap() + 2);
    drop(connection);
    let distinct: i64 = sqlx::query_scalar(
        "select count(distinct (topic, payload::text, headers, trace, due <= now())) from postrider.outbox")
        .fetch_one(&pool).await.unwrap();
    assert_eq!(distinct, 1, "one by one, in arrays or by COPY: the same");
    let (lease, item) = claim(&pool).await.swap_remove(0);
    assert_eq!((lease.id(), &*item.kind), (receipt.id, "t"));
    let payload: serde_json::Value = item.read().unwrap();
    assert_eq!(payload["text"], "tab\t back\\slash \"quote\" \n é €");
    assert_eq!(item.headers.as_deref(), Some(r#"{"h": "1"}"#));
    assert_eq!(item.trace.as_deref(), Some(trace));
}

#[tokio::test]
async fn a_payload_is_stored_verbatim_with_and_without_keys() {
    let db = database().await;
    let pool = db.pool();
    // Keys out of order, one of them twice; and an array that jsonb would write half as long again.
    let texts = [
        r#"{"b":1,"a":[1,2],"b":2}"#.to_owned(),
        format!("[{}1]", "1,".repeat(MAX_PAYLOAD / 2 - 2)),
    ];
    let mut connection = pool.acquire().await.unwrap();
    let enqueuer = Enqueuer::start(&pool, None, EnqueuerOptions::default());
    for text in &texts {
        let payload = RawValue::from_string(text.clone()).unwrap();
        let plain = Message::raw("t", payload).unwrap();
        let keyed = |key: &str| plain.clone().ordering_key(key).unwrap();
        for one in [plain.clone(), keyed("a")] {
            enqueue(&mut connection, &one).await.unwrap();
        }
        let many = [plain.clone(), keyed("b"), keyed("a")];
        enqueue_many(&mut connection, &many).await.unwrap();
        enqueuer.enqueue(keyed("c")).await.unwrap();
        let same: i64 =
            sqlx::query_scalar("select count(*) from postrider.outbox where payload::text = $1")
                .bind(text)
                .fetch_one(&pool)
                .await
                .unwrap();
        assert_eq!(same, 6);
    }
}

#[tokio::test]
async fn many_keyed_messages_are_one_round_trip_and_keep_their_order() {
    let db = database().await;
    let pool = db.pool();
    let messages: Vec<Message> = (0..50)
        .map(|n| keyed(["b", "a"][n as usize % 2], n))
        .collect();
    let mut connection = pool.acquire().await.unwrap();
    let many = enqueue_many(&mut connection, &messages).await.unwrap();
    assert_eq!((many.new, many.duplicates), (50, 0));
    // No transaction is open: each statement is one of its own.
    let transactions: i64 =
        sqlx::query_scalar("select count(distinct xmin::text) from postrider.outbox")
            .fetch_one(&mut *connection)
            .await
            .unwrap();
    assert_eq!(transactions, 1);
    for key in ["a", "b"] {
        let stored: Vec<i64> = sqlx::query_scalar(
            "select payload::text::bigint from postrider.outbox where ordering_key = $1 order by id",
        )
        .bind(key)
        .fetch_all(&mut *connection)
        .await
        .unwrap();
        assert!(
            stored.is_sorted() && stored.len() == 25,
            "{key}: {stored:?}"
        );
    }
}

#[tokio::test]
async fn a_delayed_message_is_not_due_before_its_time() {
    let db = database().await;
    let pool = db.pool();
    let mut connection = pool.acquire().await.unwrap();
    let hour = Duration::from_secs(3600);
    enqueue(&mut connection, &message(1).delay(hour).unwrap())
        .await
        .unwrap();
    enqueue_many(
        &mut connection,
        &[message(2).delay(hour).unwrap(), message(3)],
    )
    .await
    .unwrap();
    drop(connection);
    let ids: Vec<i64> = claim(&pool)
        .await
        .iter()
        .map(|(lease, _)| lease.id())
        .collect();
    assert_eq!(ids, [3]);
}

#[tokio::test]
async fn a_dedupe_key_is_unique_while_its_message_is_unfinished() {
    let db = database().await;
    let pool = db.pool();
    let once = message(1).dedupe_key("invoice-7").unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let first = enqueue(&mut connection, &once).await.unwrap();
    let second = enqueue(&mut connection, &once).await.unwrap();
    assert!(!first.duplicate && second.duplicate);
    assert_eq!(first.id, second.id);
    let many = enqueue_many(&mut connection, &[once.clone(), message(2), once.clone()])
        .await
        .unwrap();
    assert_eq!((many.new, many.duplicates), (1, 2));
    drop(connection);
    for (lease, _) in claim(&pool).await {
        settle(&pool, lease, Outcome::Done).await;
    }
    let mut connection = pool.acquire().await.unwrap();
    assert!(
        !enqueue(&mut connection, &once).await.unwrap().duplicate,
        "free again once done"
    );
}

#[tokio::test]
async fn a_dedupe_key_freed_during_the_enqueue_is_reused() {
    let db = database().await;
    let mut connection = db.connect().await;
    let once = message(1).dedupe_key("k").unwrap();
    let first = enqueue(&mut connection, &once).await.unwrap();
    // The enqueue that finds the first message's key finds it gone at its very next statement.
    let gone = format!(
        "create function finish() returns trigger language plpgsql as $$
         begin delete from postrider.outbox where id = {}; return null; end $$;
         create trigger finish after insert on postrider.outbox execute function finish()",
        first.id
    );
    connection.execute(AssertSqlSafe(gone)).await.unwrap();
    let second = enqueue(&mut connection, &once).await.unwrap();
    assert!(!second.duplicate && second.id != first.id, "{second:?}");
}

#[tokio::test]
async fn concurrent_first_messages_with_one_dedupe_key_make_one() {
    let db = database().await;
    let pool = db.pool_of(8);
    let receipts = futures_util::future::join_all((0..8).map(|_| {
        let pool = pool.clone();
        async move {
            let once = message(1).dedupe_key("k").unwrap();
            enqueue(&mut pool.acquire().await.unwrap(), &once)
                .await
                .unwrap()
        }
    }))
    .await;
    assert_eq!(
        receipts.iter().filter(|receipt| !receipt.duplicate).count(),
        1
    );
    assert_eq!(count(&pool).await, 1);
}

#[tokio::test]
async fn items_of_one_key_run_one_after_the_other_in_commit_order() {
    let db = database().await;
    let pool = db.pool();
    let mut connection = pool.acquire().await.unwrap();
    enqueue_many(
        &mut connection,
        &[keyed("a", 1), keyed("b", 10), keyed("a", 2), keyed("a", 3)],
    )
    .await
    .unwrap();
    drop(connection);
    let mut seen = Vec::new();
    loop {
        let claimed = claim(&pool).await;
        if claimed.is_empty() {
            break;
        }
        let keys: Vec<_> = claimed
            .iter()
            .map(|(_, item)| item.ordering_key.clone())
            .collect();
        assert_eq!(
            keys.len(),
            keys.iter().collect::<std::collections::HashSet<_>>().len(),
            "one of each key at a time"
        );
        for (lease, item) in claimed {
            seen.push(item.read::<i64>().unwrap());
            settle(&pool, lease, Outcome::Done).await;
        }
    }
    seen.retain(|n| *n < 10);
    assert_eq!(seen, [1, 2, 3]);
}

#[tokio::test]
async fn a_waiting_head_blocks_only_its_own_key_and_a_dead_one_does_not() {
    let db = database().await;
    let pool = db.pool();
    let mut connection = pool.acquire().await.unwrap();
    enqueue_many(
        &mut connection,
        &[keyed("a", 1), keyed("a", 2), keyed("b", 3)],
    )
    .await
    .unwrap();
    drop(connection);
    let failure = postrider::failure::Failure::new("X", "x");
    let mut claimed = claim(&pool).await;
    let (b, _) = claimed.pop().unwrap();
    let (a, _) = claimed.pop().unwrap();
    settle(
        &pool,
        a,
        Outcome::Retry {
            after: Duration::ZERO,
            failure: failure.clone(),
        },
    )
    .await;
    settle(&pool, b, Outcome::Done).await;
    let (a, item) = claim(&pool).await.pop().unwrap();
    assert_eq!(
        item.read::<i64>().unwrap(),
        1,
        "the head itself is tried again, not the next"
    );
    settle(&pool, a, Outcome::Dead { failure }).await;
    let (_, item) = claim(&pool).await.pop().unwrap();
    assert_eq!(item.read::<i64>().unwrap(), 2);
}

#[tokio::test]
async fn settling_never_waits_for_a_transaction_that_enqueues_to_the_same_key() {
    let db = database().await;
    let pool = db.pool();
    let queue = Queue::new(&OUTBOX).unwrap();
    enqueue(&mut pool.acquire().await.unwrap(), &keyed("a", 1))
        .await
        .unwrap();
    let (head, _) = claim(&pool).await.pop().unwrap();
    let mut open = pool.begin().await.unwrap();
    enqueue(&mut open, &keyed("a", 2)).await.unwrap();
    let busy = settle(&pool, head, Outcome::Done).await;
    assert_eq!(busy, ["a"], "its next message can't be promoted yet");
    open.commit().await.unwrap();
    assert!(
        claim(&pool).await.is_empty(),
        "it waits behind a finished head"
    );
    let mut connection = pool.acquire().await.unwrap();
    assert!(
        queue
            .promote(&mut connection, &busy)
            .await
            .unwrap()
            .is_empty()
    );
    drop(connection);
    assert_eq!(claim(&pool).await.len(), 1);
}

#[tokio::test]
async fn the_sweep_promotes_keys_without_a_head() {
    let db = database().await;
    let pool = db.pool();
    let mut connection = pool.acquire().await.unwrap();
    enqueue_many(
        &mut connection,
        &[keyed("a", 1), keyed("a", 2), keyed("b", 3), keyed("b", 4)],
    )
    .await
    .unwrap();
    connection
        .execute("delete from postrider.outbox where payload::text = '1'")
        .await
        .unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    assert_eq!(queue.promote_stranded(&mut connection).await.unwrap(), 1);
    assert_eq!(queue.promote_stranded(&mut connection).await.unwrap(), 0);
    drop(connection);
    let seen: Vec<i64> = claim(&pool)
        .await
        .iter()
        .map(|(_, item)| item.read().unwrap())
        .collect();
    assert_eq!(seen.len(), 2);
    assert!(seen.contains(&2) && seen.contains(&3));
}

#[tokio::test]
async fn concurrent_enqueues_of_one_key_run_in_commit_order() {
    let db = database().await;
    let pool = db.pool_of(10);
    pool.execute("create table committed (at bigint generated always as identity, n bigint)")
        .await
        .unwrap();
    let writers = (0..10).map(|n| {
        let pool = pool.clone();
        async move {
            let mut tx = pool.begin().await.unwrap();
            enqueue(&mut tx, &keyed("k", n)).await.unwrap();
            // Under the key's lock, so this sequence is the order of commits.
            sqlx::query("insert into committed (n) values ($1)")
                .bind(n)
                .execute(&mut *tx)
                .await
                .unwrap();
            tx.commit().await.unwrap();
        }
    });
    futures_util::future::join_all(writers).await;
    let mut seen: Vec<i64> = Vec::new();
    while let Some((lease, item)) = claim(&pool).await.pop() {
        seen.push(item.read().unwrap());
        settle(&pool, lease, Outcome::Done).await;
    }
    let committed: Vec<i64> = sqlx::query_scalar("select n from committed order by at")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(seen, committed);
}

#[tokio::test]
async fn group_commit_answers_every_caller_and_shares_transactions() {
    let db = database().await;
    let pool = db.pool_of(6);
    let enqueuer = Arc::new(Enqueuer::start(&pool, None, EnqueuerOptions::default()));
    let callers = (0..200).map(|n| {
        let enqueuer = Arc::clone(&enqueuer);
        async move { enqueuer.enqueue(message(n)).await.unwrap().id }
    });
    let mut ids = futures_util::future::join_all(callers).await;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 200);
    assert_eq!(count(&pool).await, 200, "an answer means a commit");
    Arc::into_inner(enqueuer).unwrap().stop().await;
    let transactions: i64 =
        sqlx::query_scalar("select count(distinct xmin::text) from postrider.outbox")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert!(
        transactions < 50,
        "{transactions} transactions for 200 messages"
    );
}

#[tokio::test]
async fn each_caller_gets_the_id_of_its_own_message() {
    let db = database().await;
    let pool = db.pool_of(6);
    let enqueuer = Enqueuer::start(&pool, None, EnqueuerOptions::default());
    let callers = (0..100).map(|n| {
        let message = Message::new("t", &n).unwrap();
        let message = match n % 3 {
            0 => message,
            1 => message.dedupe_key(format!("d{n}")).unwrap(),
            _ => message.ordering_key(format!("o{}", n % 5)).unwrap(),
        };
        let enqueuer = &enqueuer;
        async move { (enqueuer.enqueue(message).await.unwrap().id, n) }
    });
    let answers: Vec<(i64, i64)> = futures_util::future::join_all(callers).await;
    for (id, n) in answers {
        let stored: String =
            sqlx::query_scalar("select payload::text from postrider.outbox where id = $1")
                .bind(id)
                .fetch_one(&pool)
                .await
                .unwrap();
        assert_eq!(stored, n.to_string());
    }
}

#[tokio::test]
async fn in_a_group_commit_a_bad_message_fails_alone() {
    let db = database().await;
    let pool = db.pool_of(6);
    // A constraint of the installation, which Rust can't check.
    pool.execute(
        "alter table postrider.outbox add constraint local_rule check (topic <> 'forbidden')",
    )
    .await
    .unwrap();
    let enqueuer = Enqueuer::start(&pool, None, EnqueuerOptions::default());
    let callers = (0..50).map(|n| {
        let topic = if n == 25 { "forbidden" } else { "t" };
        enqueuer.enqueue(Message::new(topic, &n).unwrap())
    });
    let answers = futures_util::future::join_all(callers).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
    assert!(matches!(answers[25], Err(Error::Database(_))));
    assert_eq!(count(&pool).await, 49);
}

#[tokio::test]
async fn a_locked_key_does_not_delay_other_messages() {
    let db = database().await;
    let pool = db.pool_of(8);
    let mut open = pool.begin().await.unwrap();
    enqueue(&mut open, &keyed("held", 1)).await.unwrap();
    let enqueuer = Enqueuer::start(&pool, None, EnqueuerOptions::default());
    let (held, plain) = tokio::join!(enqueuer.enqueue(keyed("held", 2)), async {
        let receipt = enqueuer.enqueue(message(3)).await;
        assert_eq!(count(&pool).await, 1);
        receipt
    });
    assert!(held.unwrap_err().is_transient());
    plain.unwrap();
}

#[tokio::test]
async fn sql_and_rust_reject_the_same_messages() {
    let db = database().await;
    let pool = db.pool();
    let refused = [
        "select postrider.enqueue('no spaces')",
        "select postrider.enqueue('')",
        "select postrider.enqueue(null)",
        "select postrider.enqueue('t', to_jsonb(repeat('x', 1048577)))",
        "select postrider.enqueue('t', '1', ordering_key => '')",
        "select postrider.enqueue('t', '1', dedupe_key => repeat('x', 201))",
        "select postrider.enqueue('t', '1', headers => '[1]')",
        "select postrider.enqueue('t', '1', delay => '-1 s')",
        "select postrider.enqueue('t', '1', delay => '11 years')",
        "select postrider.enqueue('t', '1', delay => '1 s', ordering_key => 'k')",
        "select postrider.enqueue('t', '1', trace => 'x')",
    ];
    for statement in refused {
        let error = pool.execute(statement).await.expect_err(statement);
        assert_eq!(
            error.as_database_error().unwrap().code().unwrap(),
            "22023",
            "{statement}: {error}"
        );
    }
    let error = pool
        .execute(r#"select postrider.enqueue('t', '"\u0000"')"#)
        .await
        .unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "22P05");
    assert!(matches!(
        Message::new("t", &"x".repeat(MAX_PAYLOAD)),
        Err(Error::Invalid {
            field: "payload",
            ..
        })
    ));
    assert!(matches!(
        Message::new("t", &"\0"),
        Err(Error::Invalid {
            field: "payload",
            ..
        })
    ));
    assert_eq!(count(&pool).await, 0);
}

#[tokio::test]
async fn hints_are_sent_after_the_commit_and_coalesced() {
    let db = database().await;
    let pool = db.pool();
    let mut listener = sqlx::postgres::PgListener::connect_with(&pool)
        .await
        .unwrap();
    listener.listen(postrider::wake::CHANNEL).await.unwrap();
    let waker = postrider::wake::Waker::new(pool.clone());
    for _ in 0..1_000 {
        waker.wake(&OUTBOX);
    }
    let hint = tokio::time::timeout(Duration::from_secs(30), listener.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(hint.payload(), "postrider.outbox");
    let mut hints = 1;
    while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(200), listener.recv()).await {
        hints += 1;
    }
    assert!(hints < 20, "{hints} hints for 1000 calls");
}
