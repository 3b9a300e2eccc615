//! The doctor's findings when tables have been tampered with.

use postrider::dead_letter::{Action, DeadLetters, Filter, OperationRequest};
use postrider::lease::Operator;
use postrider_inspect::doctor::{Doctor, Severity};
use postrider_payments::{CHECKS, OUTBOX, WALLET_OUTBOX};
use serde_json::json;
use uuid::Uuid;

use crate::support::Fixture;

async fn findings(fixture: &Fixture) -> Vec<(String, Vec<String>)> {
    let doctor = Doctor::new([&OUTBOX, &WALLET_OUTBOX]).checks(CHECKS.iter().copied());
    let report = doctor.examine(&fixture.pool).await;
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
    let fixture = Fixture::new(json!({})).await;
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "30").await;
    assert_eq!(findings(&fixture).await, []);
    fixture.wallet_execute("delete from payments.outbox").await;
    let expected = ("payments/message".to_owned(), vec![uuid.to_string()]);
    assert_eq!(findings(&fixture).await, [expected]);
}

#[tokio::test]
async fn the_doctor_accepts_an_archived_message() {
    let fixture = Fixture::new(json!({})).await;
    fixture.pay(Uuid::now_v7(), "acc-1", "30").await;
    fixture
        .wallet_execute(
            "update payments.outbox set status = 'EXHAUSTED', finished_at = now(), try_count = 5,
                    last_error_code = 'GONE', cause = 'GONE: unavailable'",
        )
        .await;
    let letters = DeadLetters::new([&OUTBOX]).unwrap();
    let order = OperationRequest::new(Action::Archive, Filter::default());
    let somebody = Operator::new("somebody");
    let archived = letters.execute(&fixture.pool, &somebody, &order).await;
    assert_eq!(archived.unwrap().changed, 1);
    assert_eq!(
        fixture.count("select count(*) from payments.outbox").await,
        0
    );
    assert_eq!(findings(&fixture).await, []);
}

#[tokio::test]
async fn the_doctor_finds_entries_that_do_not_add_up() {
    let fixture = Fixture::new(json!({})).await;
    fixture.start_workers();
    fixture.open("acc-1", "100").await;
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "30").await;
    fixture.wait_for_status(uuid, "SUCCEED", None).await;
    assert_eq!(findings(&fixture).await, []);
    // A second deduction without a request and without a change of the balance.
    fixture
        .wallet_execute(
            "insert into wallet.entry (uuid, account_id, amount, currency, kind)
             select uuid, account_id, amount, currency, kind from wallet.entry where kind = 'payment' and amount < 0",
        )
        .await;
    let uuid = uuid.to_string();
    let expected = [
        ("wallet/entries-sum-to-zero", uuid.as_str()),
        ("wallet/deducted-once", uuid.as_str()),
        ("wallet/balance-agrees", "acc-1"),
    ];
    let expected = expected.map(|(check, item)| (check.to_owned(), vec![item.to_owned()]));
    assert_eq!(findings(&fixture).await, expected);
}
