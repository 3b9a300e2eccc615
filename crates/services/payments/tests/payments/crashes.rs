//! Errors and panics at every crash point of both sides: nothing is lost or deducted twice, and the two sides agree.

use std::time::Duration;

use postrider_testkit::crash::{self, Arm, Armed};
use postrider_testkit::within;
use serde_json::json;
use uuid::Uuid;

use crate::support::{DEADLINE, Fixture, payment};

#[tokio::test]
async fn an_error_at_any_crash_point_loses_and_duplicates_nothing() {
    fail_at_every_point(Arm::error, |_| true).await;
}

#[tokio::test]
async fn a_panic_at_any_crash_point_loses_nothing_and_stops_no_task() {
    // A reconciliation runs in the caller's task, which is the test itself.
    fail_at_every_point(Arm::panic, |point| !point.starts_with("reconcile.")).await;
}

async fn fail_at_every_point(act: fn(Arm) -> Armed, wanted: fn(&str) -> bool) {
    let own = crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let consumer_loop = [
        "subscriber.before_batch_commit",
        "subscriber.before_batch_ack",
    ];
    let points = own
        .into_iter()
        .chain(consumer_loop.map(str::to_owned))
        .filter(|point| wanted(point));
    for point in points {
        let mode = if point.starts_with("notify.") {
            "assured"
        } else {
            "chance"
        };
        // With a separate wallet the acknowledgement is a step of its own.
        let fixture = Fixture::with_separate_wallet(json!({ "delivery": mode })).await;
        fixture.open("acc-1", "100").await;
        let crash_point = act(crash::at(&point));
        let uuid = Uuid::now_v7();
        within(DEADLINE, "the payment is accepted", async || match fixture
            .post(payment(uuid, "acc-1", "30"))
            .await
        {
            (200 | 202, _) => Ok(()),
            other => Err(other),
        })
        .await;
        if !point.starts_with("reconcile.") {
            fixture.start_workers();
            let what = format!("{point} was reached");
            within(DEADLINE, &what, async || crash_point.fired() == 1).await;
        }
        // Continues by itself, or is stuck and gets reconciled.
        within(DEADLINE, "the payment is settled", async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            fixture.try_reconcile().await;
            let view = fixture.get(uuid).await;
            if view["status"] == "PENDING" {
                Err(view)
            } else {
                Ok(())
            }
        })
        .await;
        assert_eq!(crash_point.fired(), 1, "{point} was never reached");
        let left = match fixture.get(uuid).await["status"].as_str() {
            Some("SUCCEED") => "70.00",
            _ => "100.00",
        };
        assert_eq!(fixture.balance("acc-1").await, left, "{point}");
        fixture.audit().await;
    }
}
