//! Acceptance: what the API accepts and rejects, and that one bad payment or connection harms no other.

use std::time::{Duration, Instant};

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Fixture, eventually, payment};

#[tokio::test]
async fn a_missing_uuid_is_generated_and_returned() {
    let fixture = Fixture::new(json!({})).await;
    let body =
        json!({ "account_id": "acc-1", "amount": "12.5", "currency": "USD", "description": "tea" });
    let (status, receipt) = fixture.post(body).await;
    assert_eq!(status, 202, "{receipt}");
    let uuid: Uuid = serde_json::from_value(receipt["uuid"].clone()).unwrap();
    let view = fixture.get(uuid).await;
    assert_eq!(view["amount"], "12.50");
    assert_eq!(view["description"], "tea");
    assert_eq!(view["status"], "PENDING");
    assert!(view["created_at"].is_string() && view["updated_at"].is_string());
}

#[tokio::test]
async fn same_uuid_and_content_is_a_replay_and_different_content_a_conflict() {
    let fixture = Fixture::new(json!({})).await;
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "12.50").await;
    for same in ["12.5", "12.50", "012.500"] {
        let (status, replay) = fixture.post(payment(uuid, "acc-1", same)).await;
        assert_eq!((status, &replay["uuid"]), (200, &json!(uuid)), "{same}");
    }
    let (status, _) = fixture
        .call(
            Method::POST,
            "/payments",
            Some(json!({ "uuid": uuid, "account_id": "acc-1", "amount": 12.5, "currency": "USD" })),
        )
        .await;
    assert_eq!(status, 200, "a number with the same value");
    let mut described = payment(uuid, "acc-1", "12.50");
    described["description"] = json!("tea");
    for other in [
        payment(uuid, "acc-1", "12.51"),
        payment(uuid, "acc-2", "12.50"),
        described,
    ] {
        let (status, problem) = fixture.post(other).await;
        assert_eq!(
            (status, &problem["code"]),
            (409, &json!("idempotency-mismatch"))
        );
    }
    assert_eq!(
        fixture.count("select count(*) from payments.request").await,
        1
    );
}

#[tokio::test]
async fn concurrent_posts_of_one_uuid_are_one_payment() {
    let fixture = Fixture::new(json!({})).await;
    let uuid = Uuid::now_v7();
    let posts = (0..20).map(|n| {
        let amount = if n % 2 == 0 { "1.00" } else { "2.00" };
        fixture.post(payment(uuid, "acc-1", amount))
    });
    let answers = futures_util::future::join_all(posts).await;
    let count = |status| answers.iter().filter(|answer| answer.0 == status).count();
    assert_eq!((count(202), count(200), count(409)), (1, 9, 10));
    assert_eq!(
        fixture.count("select count(*) from payments.outbox").await,
        1
    );
}

#[tokio::test]
async fn a_payment_that_the_database_rejects_fails_alone() {
    let fixture = Fixture::new(json!({})).await;
    sqlx::query("alter table payments.request add constraint unwanted_account check (account_id <> 'unwanted')")
        .execute(&fixture.pool)
        .await
        .unwrap();
    // Concurrently, so that they share batches.
    let posts = (0..40).map(|n| {
        let account = if n % 8 == 0 { "unwanted" } else { "acc-1" };
        fixture.post(payment(Uuid::now_v7(), account, "1"))
    });
    let answers = futures_util::future::join_all(posts).await;
    for (n, (status, answer)) in answers.into_iter().enumerate() {
        let asked = if n % 8 == 0 { 500 } else { 202 };
        assert_eq!(status, asked, "{n}: {answer}");
    }
}

#[tokio::test]
async fn an_invalid_payment_is_rejected_with_the_field_at_fault_and_not_stored() {
    let fixture = Fixture::new(json!({})).await;
    let good = payment(Uuid::now_v7(), "acc-1", "1");
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    for (body, field) in [
        (with("amount", json!("0")), "/amount"),
        (with("amount", json!("-1")), "/amount"),
        (with("amount", json!("1.001")), "/amount"),
        (with("amount", json!("ten")), "/amount"),
        (with("amount", json!("1e3")), "/amount"),
        (with("amount", json!("9999999999999999999")), "/amount"),
        (with("amount", json!(null)), "/amount"),
        (with("currency", json!("usd")), "/currency"),
        (with("currency", json!("XYZ")), "/currency"),
        (with("account_id", json!("")), "/account_id"),
        (with("account_id", json!("system:payments")), "/account_id"),
        (with("account_id", json!("a".repeat(101))), "/account_id"),
        (with("uuid", json!("not-a-uuid")), "/uuid"),
        (with("description", json!("x".repeat(1001))), "/description"),
        (with("colour", json!("red")), "/colour"),
    ] {
        let (status, problem) = fixture.post(body.clone()).await;
        assert_eq!(status, 422, "{body}: {problem}");
        let named = problem["errors"][0]["field"].as_str().unwrap_or_default();
        assert_eq!(named, field, "{body}: {problem}");
    }
    assert_eq!(
        fixture.count("select count(*) from payments.request").await,
        0
    );
    let (status, problem) = fixture
        .call(Method::GET, &format!("/payments/{}", Uuid::nil()), None)
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (404, &json!("payment-not-found"))
    );
    let (status, _) = fixture.call(Method::GET, "/payments/nonsense", None).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_callback_can_be_repeated_but_never_changes_a_settled_payment() {
    let fixture = Fixture::new(json!({})).await;
    let [paid, refused] = [(); 2].map(|()| Uuid::now_v7());
    fixture.pay(paid, "acc-1", "1").await;
    fixture.pay(refused, "acc-1", "1").await;
    let put = async |uuid: Uuid, body: Value| {
        let path = format!("/internal/requests/{uuid}");
        let (status, answer) = fixture.call(Method::PUT, &path, Some(body)).await;
        (
            status,
            answer["code"].as_str().unwrap_or_default().to_owned(),
        )
    };
    for _ in 0..2 {
        assert_eq!(put(paid, json!({ "status": "SUCCEED" })).await.0, 200);
        let failed = json!({ "status": "FAILED", "reason": "INSUFFICIENT_FUNDS" });
        assert_eq!(put(refused, failed).await.0, 200);
    }
    let conflict = (409, "payment-settled".to_owned());
    assert_eq!(put(paid, json!({ "status": "FAILED" })).await, conflict);
    assert_eq!(put(refused, json!({ "status": "SUCCEED" })).await, conflict);
    assert_eq!(put(Uuid::nil(), json!({ "status": "FAILED" })).await.0, 404);
    for wrong in [
        json!({ "status": "PENDING" }),
        json!({}),
        json!({ "status": "FAILED", "reason": "x".repeat(201) }),
    ] {
        assert_eq!(put(paid, wrong).await.0, 422);
    }
    assert_eq!(fixture.get(paid).await["status"], "SUCCEED");
    assert_eq!(fixture.get(refused).await["reason"], "INSUFFICIENT_FUNDS");
}

#[tokio::test]
async fn payments_are_listed_newest_first_in_filtered_pages() {
    let fixture = Fixture::new(json!({})).await;
    let uuids: Vec<Uuid> = (0..5).map(|_| Uuid::now_v7()).collect();
    for (uuid, account) in uuids.iter().zip(["a", "b", "a", "b", "a"]) {
        fixture.pay(*uuid, account, "1").await;
    }
    let mut seen = Vec::new();
    let mut path = "/payments?limit=2&account_id=a".to_owned();
    loop {
        let (_, page) = fixture.call(Method::GET, &path, None).await;
        seen.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|view| view["uuid"].clone()),
        );
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        let other = format!("/payments?limit=2&account_id=b&cursor={cursor}");
        let (status, problem) = fixture.call(Method::GET, &other, None).await;
        assert_eq!((status, &problem["code"]), (400, &json!("invalid-cursor")));
        path = format!("/payments?limit=2&account_id=a&cursor={cursor}");
    }
    assert_eq!(seen, [json!(uuids[4]), json!(uuids[2]), json!(uuids[0])]);
}

#[tokio::test]
async fn a_silent_connection_fails_one_call_in_time_and_delays_no_other_for_longer() {
    // The acceptor's deadline, with a margin for a busy machine.
    let deadline = Duration::from_secs(10 + 10);
    let (fixture, proxy) = Fixture::behind_proxy(json!({})).await;
    fixture.pay(Uuid::now_v7(), "acc-1", "1").await;
    // The acceptor takes an idle connection, on which its statement is then lost.
    eventually("all connections are idle", async || {
        fixture.pool.num_idle() == usize::try_from(fixture.pool.size()).unwrap()
    })
    .await;
    proxy.black_hole();
    let started = Instant::now();
    let mut stalled = Box::pin(fixture.post(payment(Uuid::now_v7(), "acc-1", "1")));
    let early = tokio::time::timeout(Duration::from_secs(1), &mut stalled).await;
    assert!(early.is_err(), "nothing can be answered: {early:?}");
    // The link works again, but what was sent over it is lost.
    proxy.pass();
    let others = async {
        let posts = (0..16).map(|_| async {
            let (status, answer) = fixture.post(payment(Uuid::now_v7(), "acc-1", "1")).await;
            assert_eq!(status, 202, "{answer}");
            started.elapsed()
        });
        futures_util::future::join_all(posts).await
    };
    let stalled = async {
        let (status, problem) = stalled.await;
        assert_eq!(status, 503, "{problem}");
        started.elapsed()
    };
    let (others, stalled) = tokio::join!(others, stalled);
    assert!(stalled < deadline, "{stalled:?}");
    assert!(
        others.iter().all(|accepted| *accepted < deadline),
        "{others:?}"
    );
    assert!(
        others.iter().any(|accepted| *accepted < stalled),
        "the other lane goes on: {others:?}"
    );
}
