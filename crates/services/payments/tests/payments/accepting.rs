//! What the API takes, and what it refuses with which words.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{House, payment};

#[tokio::test]
async fn a_uuid_is_made_where_none_is_brought_and_shown_again() {
    let house = House::new(json!({})).await;
    let body =
        json!({ "account_id": "acc-1", "amount": "12.5", "currency": "USD", "description": "tea" });
    let (status, receipt) = house.post(body).await;
    assert_eq!(status, 202, "{receipt}");
    let uuid: Uuid = serde_json::from_value(receipt["uuid"].clone()).unwrap();
    let view = house.get(uuid).await;
    assert_eq!(view["amount"], "12.50");
    assert_eq!(view["description"], "tea");
    assert_eq!(view["status"], "PENDING");
    assert!(view["created_at"].is_string() && view["updated_at"].is_string());
}

#[tokio::test]
async fn the_same_uuid_and_content_is_a_replay_and_other_content_a_conflict() {
    let house = House::new(json!({})).await;
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "12.50").await;
    for same in ["12.5", "12.50", "012.500"] {
        let (status, replay) = house.post(payment(uuid, "acc-1", same)).await;
        assert_eq!((status, &replay["uuid"]), (200, &json!(uuid)), "{same}");
    }
    let (status, _) = house
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
        let (status, problem) = house.post(other).await;
        assert_eq!(
            (status, &problem["code"]),
            (409, &json!("idempotency-mismatch"))
        );
    }
    assert_eq!(
        house.count("select count(*) from payments.request").await,
        1
    );
}

#[tokio::test]
async fn many_posts_of_one_uuid_at_once_are_one_payment() {
    let house = House::new(json!({})).await;
    let uuid = Uuid::now_v7();
    let posts = (0..20).map(|n| {
        let amount = if n % 2 == 0 { "1.00" } else { "2.00" };
        house.post(payment(uuid, "acc-1", amount))
    });
    let answers = futures_util::future::join_all(posts).await;
    let count = |status| answers.iter().filter(|answer| answer.0 == status).count();
    assert_eq!((count(202), count(200), count(409)), (1, 9, 10));
    assert_eq!(house.count("select count(*) from payments.outbox").await, 1);
}

#[tokio::test]
async fn what_the_database_refuses_fails_alone() {
    let house = House::new(json!({})).await;
    sqlx::query("alter table payments.request add constraint nobody_wants_it check (account_id <> 'unwanted')")
        .execute(&house.pool)
        .await
        .unwrap();
    // At once, so that they share batches.
    let posts = (0..40).map(|n| {
        let account = if n % 8 == 0 { "unwanted" } else { "acc-1" };
        house.post(payment(Uuid::now_v7(), account, "1"))
    });
    let answers = futures_util::future::join_all(posts).await;
    for (n, (status, answer)) in answers.into_iter().enumerate() {
        let asked = if n % 8 == 0 { 500 } else { 202 };
        assert_eq!(status, asked, "{n}: {answer}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_refused_by_name_and_nothing_is_stored() {
    let house = House::new(json!({})).await;
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
        let (status, problem) = house.post(body.clone()).await;
        assert_eq!(status, 422, "{body}: {problem}");
        let named = problem["errors"][0]["field"].as_str().unwrap_or_default();
        assert_eq!(named, field, "{body}: {problem}");
    }
    assert_eq!(
        house.count("select count(*) from payments.request").await,
        0
    );
    let (status, problem) = house
        .call(Method::GET, &format!("/payments/{}", Uuid::nil()), None)
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (404, &json!("payment-not-found"))
    );
    let (status, _) = house.call(Method::GET, "/payments/nonsense", None).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn being_told_an_end_may_be_repeated_but_never_changed() {
    let house = House::new(json!({})).await;
    let [paid, refused] = [(); 2].map(|()| Uuid::now_v7());
    house.pay(paid, "acc-1", "1").await;
    house.pay(refused, "acc-1", "1").await;
    let put = async |uuid: Uuid, body: Value| {
        let path = format!("/internal/requests/{uuid}");
        let (status, answer) = house.call(Method::PUT, &path, Some(body)).await;
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
    assert_eq!(house.get(paid).await["status"], "SUCCEED");
    assert_eq!(house.get(refused).await["reason"], "INSUFFICIENT_FUNDS");
}

#[tokio::test]
async fn lists_go_from_new_to_old_in_pages() {
    let house = House::new(json!({})).await;
    let uuids: Vec<Uuid> = (0..5).map(|_| Uuid::now_v7()).collect();
    for (uuid, account) in uuids.iter().zip(["a", "b", "a", "b", "a"]) {
        house.pay(*uuid, account, "1").await;
    }
    let mut seen = Vec::new();
    let mut path = "/payments?limit=2&account_id=a".to_owned();
    loop {
        let (_, page) = house.call(Method::GET, &path, None).await;
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
        let (status, problem) = house.call(Method::GET, &other, None).await;
        assert_eq!((status, &problem["code"]), (400, &json!("invalid-cursor")));
        path = format!("/payments?limit=2&account_id=a&cursor={cursor}");
    }
    assert_eq!(seen, [json!(uuids[4]), json!(uuids[2]), json!(uuids[0])]);
}
