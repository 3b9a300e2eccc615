//! One key, one request, one outcome.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use postrider::{
    digest::Digest,
    ledger::{
        Acceptance, Coalesce, Coalesced, InvalidKey, Key, Ledger, LedgerError, Outcome, State,
    },
};
use serde_json::json;
use sqlx::PgPool;

use crate::support::{database, waits_for_a_lock};

fn key(name: &str) -> Key {
    Key::new("orders", name).unwrap()
}

fn digest(content: &str) -> Digest {
    Digest::of(&json!({ "content": content })).unwrap()
}

/// Accepts and commits.
async fn accept(pool: &PgPool, name: &str, content: &str) -> Acceptance {
    let mut tx = pool.begin().await.unwrap();
    let answer = Ledger::default()
        .accept(&mut tx, &key(name), &digest(content))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    answer
}

fn state(answer: &Acceptance) -> Option<State> {
    match answer {
        Acceptance::Replay(recorded) => Some(recorded.state),
        Acceptance::Accepted | Acceptance::Mismatch => None,
    }
}

#[tokio::test]
async fn first_request_is_accepted_repetition_is_a_replay_and_difference_a_mismatch() {
    let db = database().await;
    assert_eq!(accept(&db.pool(), "k", "a").await, Acceptance::Accepted);
    assert_eq!(
        state(&accept(&db.pool(), "k", "a").await),
        Some(State::Accepted)
    );
    assert_eq!(accept(&db.pool(), "k", "b").await, Acceptance::Mismatch);
    assert_eq!(accept(&db.pool(), "other", "b").await, Acceptance::Accepted);
}

#[tokio::test]
async fn a_rolled_back_transaction_accepts_nothing() {
    let db = database().await;
    let mut tx = db.pool().begin().await.unwrap();
    let answer = Ledger::default()
        .accept(&mut tx, &key("k"), &digest("a"))
        .await
        .unwrap();
    assert_eq!(answer, Acceptance::Accepted);
    tx.rollback().await.unwrap();
    assert_eq!(accept(&db.pool(), "k", "b").await, Acceptance::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixty_four_first_requests_at_once_exactly_one_has_its_effect() {
    let db = database().await;
    sqlx::query("create table effect (n int)")
        .execute(&db.pool())
        .await
        .unwrap();
    let requests = (0..64).map(|n| {
        let pool = db.pool();
        tokio::spawn(async move {
            let mut tx = pool.begin().await.unwrap();
            let ledger = Ledger::new(Duration::from_secs(30));
            let answer = ledger
                .accept(&mut tx, &key("k"), &digest("a"))
                .await
                .unwrap();
            if answer == Acceptance::Accepted {
                sqlx::query("insert into effect values ($1)")
                    .bind(n)
                    .execute(&mut *tx)
                    .await
                    .unwrap();
            }
            tx.commit().await.unwrap();
            answer
        })
    });
    let mut answers = Vec::new();
    for request in requests.collect::<Vec<_>>() {
        answers.push(request.await.unwrap());
    }
    let accepted = answers
        .iter()
        .filter(|answer| **answer == Acceptance::Accepted)
        .count();
    let replayed = answers
        .iter()
        .filter(|answer| state(answer) == Some(State::Accepted))
        .count();
    assert_eq!((accepted, replayed), (1, 63));
    let effects: i64 = sqlx::query_scalar("select count(*) from effect")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    assert_eq!(effects, 1);
}

#[tokio::test]
async fn a_second_request_waits_for_the_first_and_gets_its_outcome() {
    for commit in [true, false] {
        let db = database().await;
        let mut first = db.pool().begin().await.unwrap();
        Ledger::default()
            .accept(&mut first, &key("k"), &digest("a"))
            .await
            .unwrap();
        let pool = db.pool();
        let second = tokio::spawn(async move {
            let mut tx = pool.begin().await.unwrap();
            let ledger = Ledger::new(Duration::from_secs(60));
            ledger
                .accept(&mut tx, &key("k"), &digest("a"))
                .await
                .unwrap()
        });
        waits_for_a_lock(&db.pool()).await;
        if commit {
            first.commit().await.unwrap();
            assert_eq!(state(&second.await.unwrap()), Some(State::Accepted));
        } else {
            first.rollback().await.unwrap();
            assert_eq!(second.await.unwrap(), Acceptance::Accepted);
        }
    }
}

#[tokio::test]
async fn a_lock_timeout_is_busy() {
    let db = database().await;
    let mut first = db.pool().begin().await.unwrap();
    Ledger::default()
        .accept(&mut first, &key("k"), &digest("a"))
        .await
        .unwrap();
    let mut second = db.pool().begin().await.unwrap();
    let ledger = Ledger::new(Duration::from_millis(20));
    let answer = ledger.accept(&mut second, &key("k"), &digest("a")).await;
    assert!(
        matches!(answer, Err(LedgerError::Busy { .. })),
        "{answer:?}"
    );
    let mut third = db.pool().begin().await.unwrap();
    let many = ledger
        .accept_many(&mut third, &[(key("k"), digest("a"))])
        .await;
    assert!(matches!(many, Err(LedgerError::Busy { .. })), "{many:?}");
}

#[tokio::test]
async fn an_outcome_is_recorded_once_and_replayed() {
    let db = database().await;
    let mut connection = db.pool().acquire().await.unwrap();
    let ledger = Ledger::default();
    accept(&db.pool(), "k", "a").await;
    ledger
        .finish(
            &mut connection,
            &key("k"),
            Outcome::Succeeded,
            Some(json!({"id": 7})),
        )
        .await
        .unwrap();
    let Acceptance::Replay(recorded) = accept(&db.pool(), "k", "a").await else {
        panic!("no replay")
    };
    assert_eq!(
        (recorded.state, recorded.result),
        (State::Succeeded, Some(json!({"id": 7})))
    );
    assert!(recorded.finished_at.unwrap() >= recorded.created_at);

    let again = ledger
        .finish(&mut connection, &key("k"), Outcome::Failed, None)
        .await;
    assert!(
        matches!(
            again,
            Err(LedgerError::WrongState {
                state: State::Succeeded,
                ..
            })
        ),
        "{again:?}"
    );
    let unknown = ledger
        .finish(&mut connection, &key("x"), Outcome::Failed, None)
        .await;
    assert!(
        matches!(unknown, Err(LedgerError::Unknown(_))),
        "{unknown:?}"
    );
    assert_eq!(
        accept(&db.pool(), "k", "b").await,
        Acceptance::Mismatch,
        "even after it finished"
    );
}

#[tokio::test]
async fn only_a_failed_entry_is_reopened() {
    let db = database().await;
    let mut connection = db.pool().acquire().await.unwrap();
    let ledger = Ledger::default();
    accept(&db.pool(), "k", "a").await;
    let early = ledger.reopen(&mut connection, &key("k")).await;
    assert!(
        matches!(
            early,
            Err(LedgerError::WrongState {
                state: State::Accepted,
                ..
            })
        ),
        "{early:?}"
    );
    ledger
        .finish(
            &mut connection,
            &key("k"),
            Outcome::Failed,
            Some(json!("no")),
        )
        .await
        .unwrap();
    ledger.reopen(&mut connection, &key("k")).await.unwrap();
    let recorded = ledger
        .get(&mut connection, &key("k"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (recorded.state, recorded.result, recorded.finished_at),
        (State::Accepted, None, None)
    );
}

#[tokio::test]
async fn an_unstorable_result_does_not_undo_the_work() {
    let db = database().await;
    let mut connection = db.pool().acquire().await.unwrap();
    accept(&db.pool(), "k", "a").await;
    let result = json!({"a\0b": ["c\0", 1e300, {"d": "\0"}]});
    Ledger::default()
        .finish(&mut connection, &key("k"), Outcome::Succeeded, Some(result))
        .await
        .unwrap();
    let recorded = Ledger::default()
        .get(&mut connection, &key("k"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(recorded.result.unwrap()["a\u{FFFD}b"][0], "c\u{FFFD}");
}

#[tokio::test]
async fn many_requests_are_answered_in_order_as_if_one_by_one() {
    let db = database().await;
    accept(&db.pool(), "old", "a").await;
    let requests = [
        ("new", "a"),
        ("old", "a"),
        ("new", "a"),
        ("new", "b"),
        ("old", "b"),
        ("last", "a"),
    ]
    .map(|(name, content)| (key(name), digest(content)));
    let mut tx = db.pool().begin().await.unwrap();
    let answers = Ledger::default()
        .accept_many(&mut tx, &requests)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(answers[0], Acceptance::Accepted);
    assert_eq!(state(&answers[1]), Some(State::Accepted));
    assert_eq!(state(&answers[2]), Some(State::Accepted));
    assert_eq!(
        answers[3..],
        [
            Acceptance::Mismatch,
            Acceptance::Mismatch,
            Acceptance::Accepted
        ]
    );
    let mut connection = db.pool().acquire().await.unwrap();
    assert_eq!(
        Ledger::default()
            .accept_many(&mut connection, &[])
            .await
            .unwrap(),
        []
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_with_the_same_keys_in_opposite_order_never_deadlock() {
    let db = database().await;
    let batches = (0..8).map(|n| {
        let pool = db.pool();
        tokio::spawn(async move {
            let mut accepted = 0;
            for round in 0..10 {
                let mut requests: Vec<_> = (0..50)
                    .map(|k| (key(&format!("{round}-{k}")), digest("a")))
                    .collect();
                if n % 2 == 0 {
                    requests.reverse();
                }
                let mut tx = pool.begin().await.unwrap();
                let ledger = Ledger::new(Duration::from_secs(30));
                let answers = ledger.accept_many(&mut tx, &requests).await.unwrap();
                tx.commit().await.unwrap();
                accepted += answers
                    .iter()
                    .filter(|answer| **answer == Acceptance::Accepted)
                    .count();
            }
            accepted
        })
    });
    let mut accepted = 0;
    for batch in batches.collect::<Vec<_>>() {
        accepted += batch.await.unwrap();
    }
    assert_eq!(accepted, 500);
}

#[tokio::test]
async fn equal_requests_of_one_process_share_one_execution() {
    let coalesce: Coalesce<u32, LedgerError> = Coalesce::default();
    let runs = AtomicUsize::new(0);
    let request = || {
        coalesce.run(&KEY, &DIGEST, || async {
            runs.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(7)
        })
    };
    let outcomes = futures_util::future::join_all((0..64).map(|_| request())).await;
    let led = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Ok(Coalesced::Led(7))))
        .count();
    let joined = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Ok(Coalesced::Joined(7))))
        .count();
    assert_eq!((led, joined, runs.load(Ordering::SeqCst)), (1, 63, 1));
    assert!(
        matches!(request().await, Ok(Coalesced::Led(7))),
        "a later request checks again"
    );
}

static KEY: std::sync::LazyLock<Key> = std::sync::LazyLock::new(|| key("k"));
static DIGEST: std::sync::LazyLock<Digest> = std::sync::LazyLock::new(|| digest("a"));

#[tokio::test]
async fn when_the_running_request_is_cancelled_the_next_takes_over() {
    let coalesce: Arc<Coalesce<u32, LedgerError>> = Arc::default();
    let begun = Arc::new(tokio::sync::Notify::new());
    let first = tokio::spawn({
        let (coalesce, begun) = (Arc::clone(&coalesce), Arc::clone(&begun));
        async move {
            let never = || async {
                begun.notify_one();
                std::future::pending().await
            };
            coalesce.run(&KEY, &DIGEST, never).await
        }
    });
    begun.notified().await;
    let second = coalesce.run(&KEY, &DIGEST, || async { Ok(2) });
    let (second, ()) = tokio::join!(second, async { first.abort() });
    assert!(matches!(second, Ok(Coalesced::Led(2))));
}

#[tokio::test]
async fn a_failure_is_shared_but_not_remembered() {
    let coalesce: Coalesce<u32, LedgerError> = Coalesce::default();
    let fail = || {
        coalesce.run(&KEY, &DIGEST, || async {
            tokio::task::yield_now().await;
            Err(LedgerError::Unknown(KEY.clone()))
        })
    };
    let (a, b) = tokio::join!(fail(), fail());
    assert!(Arc::ptr_eq(&a.unwrap_err(), &b.unwrap_err()));
    assert!(
        coalesce
            .run(&KEY, &DIGEST, || async { Ok(1) })
            .await
            .is_ok()
    );
}

#[test]
fn unstorable_keys_are_rejected() {
    assert_eq!(Key::new("", "k"), Err(InvalidKey::Empty("scope")));
    assert_eq!(Key::new("s", ""), Err(InvalidKey::Empty("key")));
    assert_eq!(
        Key::new("s", "a\0"),
        Err(InvalidKey::ControlCharacter("key"))
    );
    assert!(matches!(
        Key::new("s", "k".repeat(256)),
        Err(InvalidKey::TooLong {
            found: 256,
            most: 255,
            ..
        })
    ));
    assert!(Key::new("s", "ä".repeat(127)).is_ok());
}

#[tokio::test]
async fn the_database_rejects_contradictory_states() {
    let db = database().await;
    for (columns, values) in [
        ("state", "'succeeded'"),
        ("state, finished_at", "'accepted', now()"),
        ("state, result", "'accepted', '{}'"),
        ("state, finished_at", "'done', now()"),
    ] {
        let sql = format!(
            "insert into postrider.ledger (scope, key, digest, {columns}) values ('s', 'k', sha256('a'), {values})"
        );
        let error = sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&db.pool())
            .await
            .unwrap_err();
        let kind = error.as_database_error().unwrap().kind();
        assert!(
            matches!(kind, sqlx::error::ErrorKind::CheckViolation),
            "{columns}: {error}"
        );
    }
}
