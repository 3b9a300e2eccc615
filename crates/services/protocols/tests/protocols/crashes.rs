//! A crash at any point of a step: the final state is the same as without it.

use postrider_testkit::crash;
use serde_json::json;

use crate::support::{Fixture, Reply, StageServer, with_stages};

#[tokio::test]
async fn crash_at_any_point_of_a_step_costs_only_an_attempt() {
    for point in ["extraction", "grounding"] {
        for side in ["before", "after"] {
            let fixture = Fixture::new().await;
            let (extraction, extraction_url) = StageServer::start(|_, _| Reply::criteria()).await;
            let (grounding, grounding_url) = StageServer::start(|_, _| Reply::criteria()).await;
            fixture.start_worker(&with_stages(&extraction_url, &grounding_url, json!({})));
            let trap = crash::at(&format!("protocols.{side}_{point}")).panic();
            let id = fixture.upload_text("text").await;
            fixture.wait_for_status(&id, "pending_review").await;
            assert_eq!(trap.fired(), 1);
            let twice = usize::from(side == "after") + 1;
            let expected = if point == "extraction" {
                (twice, 1)
            } else {
                (1, twice)
            };
            assert_eq!(
                (extraction.calls().len(), grounding.calls().len()),
                expected,
                "{side} {point}"
            );
            fixture.assert_invariants().await;
        }
    }
}
