//! A failure at any point, in this process: the final state is the same as without it.

use postrider_testkit::crash;
use serde_json::json;

use crate::support::{House, Reply, StageServer, with_stages};

#[tokio::test]
async fn a_panic_or_an_error_at_any_point_of_a_step_costs_an_attempt_and_nothing_else() {
    for point in ["extraction", "grounding"] {
        for side in ["before", "after"] {
            let house = House::new().await;
            let (extraction, extraction_url) = StageServer::start(|_, _| Reply::criteria()).await;
            let (grounding, grounding_url) = StageServer::start(|_, _| Reply::criteria()).await;
            house.work(&with_stages(&extraction_url, &grounding_url, json!({})));
            let trap = crash::at(&format!("protocols.{side}_{point}")).panic();
            let id = house.upload_text("text").await;
            house.stands(&id, "pending_review").await;
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
            house.assert_sound().await;
        }
    }
}
