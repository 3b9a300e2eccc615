//! A failure at every named point, on either side: nothing is lost, nothing is deducted twice, the two sides agree.

use std::time::Duration;

use postrider_testkit::crash::{self, Arm, Armed};
use postrider_testkit::within;
use serde_json::json;
use uuid::Uuid;

use crate::support::{DEADLINE, House, payment};

#[tokio::test]
async fn a_failure_at_any_point_loses_nothing_and_deducts_nothing_twice() {
    at_every_point(Arm::error, |_| true).await;
}

#[tokio::test]
async fn a_panic_at_any_point_of_a_part_loses_nothing_and_ends_no_part() {
    // A reconciliation runs in the caller's task, which is the test here.
    at_every_point(Arm::panic, |point| !point.starts_with("reconcile.")).await;
}

async fn at_every_point(act: fn(Arm) -> Armed, wanted: fn(&str) -> bool) {
    let points = crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    for point in points.into_iter().filter(|point| wanted(point)) {
        let mode = if point.starts_with("notify.") {
            "assured"
        } else {
            "chance"
        };
        // Apart: there the acknowledgement is a step of its own.
        let house = House::apart(json!({ "delivery": mode })).await;
        house.open("acc-1", "100").await;
        let trap = act(crash::at(&point));
        let uuid = Uuid::now_v7();
        within(DEADLINE, "it is accepted", async || {
            match house.post(payment(uuid, "acc-1", "30")).await {
                (200 | 202, _) => Ok(()),
                other => Err(other),
            }
        })
        .await;
        if !point.starts_with("reconcile.") {
            house.work();
            let what = format!("{point} was passed");
            within(DEADLINE, &what, async || trap.fired() == 1).await;
        }
        // What failed once goes on by itself, or is stuck and gets settled.
        within(DEADLINE, "it has ended", async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            house.try_reconcile().await;
            let view = house.get(uuid).await;
            if view["status"] == "PENDING" {
                Err(view)
            } else {
                Ok(())
            }
        })
        .await;
        assert_eq!(trap.fired(), 1, "{point} was never passed");
        let left = match house.get(uuid).await["status"].as_str() {
            Some("SUCCEED") => "70.00",
            _ => "100.00",
        };
        assert_eq!(house.balance("acc-1").await, left, "{point}");
        house.audit().await;
    }
}
