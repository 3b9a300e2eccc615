//! What the doctor says when the books are tampered with.

use postrider::dead_letter::{Action, DeadLetters, Filter, Order};
use postrider::lease::Operator;
use postrider_inspect::doctor::{Doctor, Severity};
use postrider_payments::{CHECKS, OUTBOX, WALLET_OUTBOX};
use serde_json::json;
use uuid::Uuid;

use crate::support::House;

async fn found(house: &House) -> Vec<(String, Vec<String>)> {
    let doctor = Doctor::new([&OUTBOX, &WALLET_OUTBOX]).checks(CHECKS.iter().copied());
    let report = doctor.examine(&house.pool).await;
    let found = report.at_least(Severity::Critical).into_iter();
    found
        .filter(|finding| {
            finding.check.starts_with("payments/") || finding.check.starts_with("wallet/")
        })
        .map(|finding| (finding.check.clone(), finding.items.clone()))
        .collect()
}

#[tokio::test]
async fn the_doctor_finds_a_pending_payment_without_its_message() {
    let house = House::new(json!({})).await;
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "30").await;
    assert_eq!(found(&house).await, []);
    house.wallet_execute("delete from payments.outbox").await;
    let said = ("payments/message".to_owned(), vec![uuid.to_string()]);
    assert_eq!(found(&house).await, [said]);
}

#[tokio::test]
async fn the_doctor_does_not_mind_a_message_that_was_given_up_and_archived() {
    let house = House::new(json!({})).await;
    house.pay(Uuid::now_v7(), "acc-1", "30").await;
    house
        .wallet_execute(
            "update payments.outbox set status = 'EXHAUSTED', finished_at = now(), try_count = 5,
                    last_error_code = 'GONE', cause = 'GONE: it was away'",
        )
        .await;
    let letters = DeadLetters::new([&OUTBOX]).unwrap();
    let order = Order::new(Action::Archive, Filter::default());
    let somebody = Operator::new("somebody");
    let archived = letters.carry_out(&house.pool, &somebody, &order).await;
    assert_eq!(archived.unwrap().changed, 1);
    assert_eq!(house.count("select count(*) from payments.outbox").await, 0);
    assert_eq!(found(&house).await, []);
}

#[tokio::test]
async fn the_doctor_finds_books_that_do_not_add_up() {
    let house = House::new(json!({})).await;
    house.work();
    house.open("acc-1", "100").await;
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "30").await;
    house.stands(uuid, "SUCCEED", None).await;
    assert_eq!(found(&house).await, []);
    // A second deduction that nobody has asked for, and that the balance knows nothing of.
    house
        .wallet_execute(
            "insert into wallet.entry (uuid, account_id, amount, currency, kind)
             select uuid, account_id, amount, currency, kind from wallet.entry where kind = 'payment' and amount < 0",
        )
        .await;
    let uuid = uuid.to_string();
    let said = [
        ("wallet/entries-sum-to-zero", uuid.as_str()),
        ("wallet/deducted-once", uuid.as_str()),
        ("wallet/balance-agrees", "acc-1"),
    ];
    let said = said.map(|(check, item)| (check.to_owned(), vec![item.to_owned()]));
    assert_eq!(found(&house).await, said);
}
