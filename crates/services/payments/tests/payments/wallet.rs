//! Accounts and entries: exact, never below zero, always balanced.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Fixture, payment};

#[tokio::test]
async fn an_account_is_opened_once_and_its_entries_can_be_listed() {
    let fixture = Fixture::new(json!({})).await;
    let open = async |body: Value| {
        fixture
            .call(Method::POST, "/wallet/accounts", Some(body))
            .await
    };
    let body = json!({ "account_id": "acc-1", "currency": "USD", "balance": "100.5" });
    let (status, view) = open(body.clone()).await;
    let expected = json!({ "account_id": "acc-1", "currency": "USD", "balance": "100.50" });
    assert_eq!((status, &view), (201, &expected));
    assert_eq!(open(body).await, (200, expected), "the same again");
    for other in [
        json!({ "account_id": "acc-1", "currency": "EUR", "balance": "100.5" }),
        json!({ "account_id": "acc-1", "currency": "USD", "balance": "100" }),
    ] {
        let (status, problem) = open(other).await;
        assert_eq!((status, &problem["code"]), (409, &json!("account-exists")));
    }
    for (wrong, field) in [
        (
            json!({ "account_id": "a", "currency": "JPY", "balance": "0.5" }),
            "/balance",
        ),
        (
            json!({ "account_id": "a", "currency": "USD", "balance": "-1" }),
            "/balance",
        ),
        (
            json!({ "account_id": "a b", "currency": "USD", "balance": "1" }),
            "/account_id",
        ),
        (
            json!({ "account_id": "a", "currency": "dollar", "balance": "1" }),
            "/currency",
        ),
    ] {
        let (status, problem) = open(wrong).await;
        assert_eq!(
            (status, &problem["errors"][0]["field"]),
            (422, &json!(field)),
            "{problem}"
        );
    }
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "0.5").await;
    fixture.wait_for_status(uuid, "SUCCEED", None).await;
    let (_, page) = fixture
        .call(Method::GET, "/wallet/accounts/acc-1/entries", None)
        .await;
    let lines: Vec<(&str, &str)> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            (
                entry["kind"].as_str().unwrap(),
                entry["amount"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(lines, [("payment", "-0.50"), ("opening", "100.50")]);
    let (status, problem) = fixture
        .call(Method::GET, "/wallet/accounts/nobody", None)
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (404, &json!("account-not-found"))
    );
    let (status, _) = fixture
        .call(Method::GET, "/wallet/accounts/nobody/entries", None)
        .await;
    assert_eq!(status, 404);
    fixture.audit().await;
}

#[tokio::test]
async fn a_declined_payment_is_a_business_result_and_not_an_error() {
    let fixture = Fixture::new(json!({})).await;
    fixture.open("acc-1", "10").await;
    fixture.start_workers();
    let [poor, unknown, foreign] = [(); 3].map(|()| Uuid::now_v7());
    fixture.pay(poor, "acc-1", "10.01").await;
    fixture.pay(unknown, "nobody", "1").await;
    let mut yen = payment(foreign, "acc-1", "1");
    yen["currency"] = json!("JPY");
    assert_eq!(fixture.post(yen).await.0, 202);
    fixture
        .wait_for_status(poor, "FAILED", Some("INSUFFICIENT_FUNDS"))
        .await;
    fixture
        .wait_for_status(unknown, "FAILED", Some("UNKNOWN_ACCOUNT"))
        .await;
    fixture
        .wait_for_status(foreign, "FAILED", Some("CURRENCY_MISMATCH"))
        .await;
    assert_eq!(fixture.balance("acc-1").await, "10.00");
    assert_eq!(
        fixture
            .wallet_count("select count(*) from wallet.inbox where status = 'FAILED'")
            .await,
        3
    );
    assert_eq!(
        fixture
            .wallet_count("select count(*) from wallet.failure")
            .await,
        0
    );
    fixture.audit().await;
}

#[tokio::test]
async fn concurrent_wallets_never_take_a_balance_below_zero() {
    let fixture = Fixture::new(json!({ "wallet": { "batch": 3 } })).await;
    fixture.open("a", "10").await;
    fixture.open("b", "10").await;
    let uuids: Vec<Uuid> = (0..60).map(|_| Uuid::now_v7()).collect();
    for (n, uuid) in uuids.iter().enumerate() {
        fixture
            .pay(*uuid, if n % 2 == 0 { "a" } else { "b" }, "0.70")
            .await;
    }
    fixture.start_workers();
    fixture.start_workers();
    fixture.start_workers();
    let mut paid = 0;
    for uuid in &uuids {
        let view = postrider_testkit::within(
            crate::support::DEADLINE,
            "the payment is settled",
            async || {
                let view = fixture.get(*uuid).await;
                if view["status"] == "PENDING" {
                    Err(view)
                } else {
                    Ok(view)
                }
            },
        )
        .await;
        paid += u32::from(view["status"] == "SUCCEED");
    }
    assert_eq!(paid, 28, "fourteen times 0.70 from each");
    assert_eq!(
        (fixture.balance("a").await, fixture.balance("b").await),
        ("0.20".into(), "0.20".into())
    );
    fixture.audit().await;
}
