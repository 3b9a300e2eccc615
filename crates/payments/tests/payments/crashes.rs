//! A failure at every named point, on either side: nothing is lost, nothing is deducted twice, the two sides agree.

use std::time::Duration;

use postrider_testkit::{crash, within};
use serde_json::json;
use uuid::Uuid;

use crate::support::{DEADLINE, House, payment};

#[tokio::test]
async fn a_failure_at_any_point_loses_nothing_and_deducts_nothing_twice() {
    for point in crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")) {
        let mode = if point.starts_with("notify.") {
            "assured"
        } else {
            "chance"
        };
        // Apart: there the acknowledgement is a step of its own.
        let house = House::apart(json!({ "delivery": mode })).await;
        house.open("acc-1", "100").await;
        let trap = crash::at(&point).error();
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
