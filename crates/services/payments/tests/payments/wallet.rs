//! Accounts and books: exact, never below zero, always in balance.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{House, payment};

#[tokio::test]
async fn an_account_is_opened_once_shown_and_its_books_can_be_read() {
    let house = House::new(json!({})).await;
    let open = async |body: Value| {
        house
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
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "0.5").await;
    house.stands(uuid, "SUCCEED", None).await;
    let (_, page) = house
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
    let (status, problem) = house
        .call(Method::GET, "/wallet/accounts/nobody", None)
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (404, &json!("account-not-found"))
    );
    let (status, _) = house
        .call(Method::GET, "/wallet/accounts/nobody/entries", None)
        .await;
    assert_eq!(status, 404);
    house.audit().await;
}

#[tokio::test]
async fn what_the_wallet_refuses_is_a_business_result_and_no_exception() {
    let house = House::new(json!({})).await;
    house.open("acc-1", "10").await;
    house.work();
    let [poor, unknown, foreign] = [(); 3].map(|()| Uuid::now_v7());
    house.pay(poor, "acc-1", "10.01").await;
    house.pay(unknown, "nobody", "1").await;
    let mut yen = payment(foreign, "acc-1", "1");
    yen["currency"] = json!("JPY");
    assert_eq!(house.post(yen).await.0, 202);
    house
        .stands(poor, "FAILED", Some("INSUFFICIENT_FUNDS"))
        .await;
    house
        .stands(unknown, "FAILED", Some("UNKNOWN_ACCOUNT"))
        .await;
    house
        .stands(foreign, "FAILED", Some("CURRENCY_MISMATCH"))
        .await;
    assert_eq!(house.balance("acc-1").await, "10.00");
    assert_eq!(
        house
            .wallet_count("select count(*) from wallet.inbox where status = 'FAILED'")
            .await,
        3
    );
    assert_eq!(
        house
            .wallet_count("select count(*) from wallet.failure")
            .await,
        0
    );
    house.audit().await;
}

#[tokio::test]
async fn two_wallets_at_once_never_take_an_account_below_zero() {
    let house = House::new(json!({ "wallet": { "batch": 3 } })).await;
    house.open("a", "10").await;
    house.open("b", "10").await;
    let uuids: Vec<Uuid> = (0..60).map(|_| Uuid::now_v7()).collect();
    for (n, uuid) in uuids.iter().enumerate() {
        house
            .pay(*uuid, if n % 2 == 0 { "a" } else { "b" }, "0.70")
            .await;
    }
    house.work();
    house.work();
    house.work();
    let mut paid = 0;
    for uuid in &uuids {
        let view =
            postrider_testkit::within(crate::support::DEADLINE, "it has ended", async || {
                let view = house.get(*uuid).await;
                if view["status"] == "PENDING" {
                    Err(view)
                } else {
                    Ok(view)
                }
            })
            .await;
        paid += u32::from(view["status"] == "SUCCEED");
    }
    assert_eq!(paid, 28, "fourteen times 0.70 from each");
    assert_eq!(
        (house.balance("a").await, house.balance("b").await),
        ("0.20".into(), "0.20".into())
    );
    house.audit().await;
}
