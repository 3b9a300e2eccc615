//! Every crash point, by an error, a panic and a stall: the job completes, each file exists once and complete.

use std::time::Duration;

use axum::http::Method;
use postrider_testkit::crash;
use serde_json::json;

use crate::support::{Fixture, inputs, settings};

fn points() -> Vec<String> {
    let all = crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    all.into_iter()
        // Accepting and reusing have tests of their own.
        .filter(|point| !point.ends_with("_accept") && !point.ends_with("_reuse"))
        .collect()
}

async fn survives(point: &str, arm: impl Fn(crash::Arm) -> crash::Armed) {
    let fixture = Fixture::new().await;
    let trap = arm(crash::at(point).on_hit(2));
    fixture.start_worker(&settings(json!({ "concurrency": 2 })));
    let job = fixture.submit(inputs(5)).await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    assert_eq!(trap.fired(), 1, "{point} was never reached");
    drop(trap);
    let files = view["dataContent"].as_array().unwrap();
    assert_eq!(
        (files.len(), &view["filesGenerated"]),
        (5, &json!(5)),
        "{point}"
    );
    for file in files {
        let text = std::fs::read_to_string(fixture.file(file["s3Path"].as_str().unwrap())).unwrap();
        assert_eq!(text.lines().count(), 21, "{point}");
    }
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_artifact")
            .await,
        5
    );
    fixture.store.sweep(Duration::ZERO).await.unwrap();
    assert_eq!(
        fixture.temporaries(),
        Vec::<std::path::PathBuf>::new(),
        "{point}"
    );
}

#[tokio::test]
async fn error_at_any_crash_point_costs_only_an_attempt() {
    for point in points() {
        survives(&point, crash::Arm::error).await;
    }
}

#[tokio::test]
async fn panic_at_any_crash_point_costs_only_an_attempt() {
    for point in points() {
        survives(&point, crash::Arm::panic).await;
    }
}

#[tokio::test]
async fn stall_past_the_lease_at_any_crash_point_loses_nothing() {
    for point in points() {
        survives(&point, |arm| arm.stall(Duration::from_millis(1500))).await;
    }
}

#[tokio::test]
async fn repeating_a_request_after_a_crash_leaves_exactly_one_job() {
    let fixture = Fixture::new().await;
    let body = json!({ "inputs": inputs(3) }).to_string();
    for (point, jobs) in [("exports.before_accept", 0), ("exports.after_accept", 1)] {
        let trap = crash::at(point).error();
        let post = || fixture.call_with_key(Method::POST, "/jobs", Some(body.clone()), Some(point));
        assert!(post().await.0.is_server_error());
        drop(trap);
        let before = fixture
            .count("select count(*) from exports.export_job")
            .await;
        let (status, answer) = post().await;
        assert!(status.is_success(), "{answer}");
        let after = fixture
            .count("select count(*) from exports.export_job")
            .await;
        assert_eq!(after - before, 1 - jobs, "{point}");
    }
}

#[tokio::test]
async fn inputs_are_claimed_as_usual_when_the_fast_path_fails() {
    let arms: [fn(crash::Arm) -> crash::Armed; 3] = [crash::Arm::error, crash::Arm::panic, |arm| {
        arm.stall(Duration::from_millis(1500))
    }];
    for arm in arms {
        let fixture = Fixture::new().await;
        fixture.start_worker(&settings(json!({})));
        let first = fixture.submit(inputs(5)).await;
        fixture.wait_for_status(&first, "COMPLETED").await;
        let trap = arm(crash::at("exports.before_reuse"));
        let second = fixture.submit(inputs(5)).await;
        let view = fixture.wait_for_status(&second, "COMPLETED").await;
        assert_eq!(trap.fired(), 1, "it was never reached");
        assert_eq!(view["filesReused"], 5);
    }
}
