//! Every crash point of the slice, failed, panicked and stalled at: the job completes, each file once and whole.

use std::time::Duration;

use axum::http::Method;
use postrider_testkit::crash;
use serde_json::json;

use crate::support::{House, many, settings};

fn points() -> Vec<String> {
    let all = crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    all.into_iter()
        // The acceptance and the reuse have tests of their own.
        .filter(|point| !point.ends_with("_accept") && !point.ends_with("_reuse"))
        .collect()
}

async fn survives(point: &str, arm: impl Fn(crash::Arm) -> crash::Armed) {
    let house = House::new().await;
    let trap = arm(crash::at(point).on_hit(2));
    house.work(&settings(json!({ "concurrency": 2 })));
    let job = house.submit(many(5)).await;
    let view = house.stands(&job, "COMPLETED").await;
    assert_eq!(trap.fired(), 1, "{point} was never passed");
    drop(trap);
    let files = view["dataContent"].as_array().unwrap();
    assert_eq!(
        (files.len(), &view["filesGenerated"]),
        (5, &json!(5)),
        "{point}"
    );
    for file in files {
        let text = std::fs::read_to_string(house.file(file["s3Path"].as_str().unwrap())).unwrap();
        assert_eq!(text.lines().count(), 21, "{point}");
    }
    assert_eq!(
        house
            .count("select count(*) from exports.export_artifact")
            .await,
        5
    );
    house.store.sweep(Duration::ZERO).await.unwrap();
    assert_eq!(
        house.temporaries(),
        Vec::<std::path::PathBuf>::new(),
        "{point}"
    );
}

#[tokio::test]
async fn an_error_anywhere_costs_an_attempt_and_nothing_else() {
    for point in points() {
        survives(&point, crash::Arm::error).await;
    }
}

#[tokio::test]
async fn a_panic_anywhere_costs_an_attempt_and_nothing_else() {
    for point in points() {
        survives(&point, crash::Arm::panic).await;
    }
}

#[tokio::test]
async fn a_stall_past_the_lease_anywhere_is_survived() {
    for point in points() {
        survives(&point, |arm| arm.stall(Duration::from_millis(1500))).await;
    }
}

#[tokio::test]
async fn a_crash_around_the_acceptance_makes_one_job_or_none_and_a_repetition_makes_one() {
    let house = House::new().await;
    let body = json!({ "inputs": many(3) }).to_string();
    for (point, jobs) in [("exports.before_accept", 0), ("exports.after_accept", 1)] {
        let trap = crash::at(point).error();
        let post = || house.keyed(Method::POST, "/jobs", Some(body.clone()), Some(point));
        assert!(post().await.0.is_server_error());
        drop(trap);
        let before = house.count("select count(*) from exports.export_job").await;
        let (status, answer) = post().await;
        assert!(status.is_success(), "{answer}");
        let after = house.count("select count(*) from exports.export_job").await;
        assert_eq!(after - before, 1 - jobs, "{point}");
    }
}

#[tokio::test]
async fn a_fault_while_files_are_reused_leaves_them_to_the_claims() {
    let arms: [fn(crash::Arm) -> crash::Armed; 3] = [crash::Arm::error, crash::Arm::panic, |arm| {
        arm.stall(Duration::from_millis(1500))
    }];
    for arm in arms {
        let house = House::new().await;
        house.work(&settings(json!({})));
        let first = house.submit(many(5)).await;
        house.stands(&first, "COMPLETED").await;
        let trap = arm(crash::at("exports.before_reuse"));
        let second = house.submit(many(5)).await;
        let view = house.stands(&second, "COMPLETED").await;
        assert_eq!(trap.fired(), 1, "it was never passed");
        assert_eq!(view["filesReused"], 5);
    }
}
