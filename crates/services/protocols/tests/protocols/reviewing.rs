//! Review: approve or reject.

use axum::http::StatusCode;
use serde_json::json;

use crate::support::{Fixture, SHORT, settings};

#[tokio::test]
async fn approved_protocol_stays_complete() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let id = fixture.upload_text(SHORT).await;
    fixture.wait_for_status(&id, "pending_review").await;
    let answer = fixture.review(&id, json!({ "decision": "approve" })).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let view = answer.json();
    assert_eq!(view["status"], "complete");
    assert_eq!(view["metadata"]["review"]["decision"], "approve");
    assert_eq!(view["criteria"].as_array().unwrap().len(), 3);
    for decision in ["approve", "reject"] {
        let again = fixture
            .review(&id, json!({ "decision": decision, "reason": "again" }))
            .await;
        assert_eq!(again.status, StatusCode::CONFLICT);
        assert_eq!(again.json()["code"], "protocol-not-reviewable");
    }
    let retry = fixture.retry(&id).await;
    assert_eq!(
        (retry.status, retry.json()["status_now"].clone()),
        (StatusCode::BAD_REQUEST, json!("complete"))
    );
    assert_eq!(
        fixture
            .query_number("select count(*) from postrider.audit where action = 'approve'")
            .await,
        1
    );
}

#[tokio::test]
async fn rejected_protocol_goes_back_to_extraction_and_keeps_the_reason() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let id = fixture.upload_text(SHORT).await;
    fixture.wait_for_status(&id, "pending_review").await;
    for body in [
        json!({ "decision": "reject" }),
        json!({ "decision": "reject", "reason": "  " }),
    ] {
        let refused = fixture.review(&id, body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(refused.json()["errors"][0]["field"], "/reason");
    }
    let answer = fixture
        .review(
            &id,
            json!({ "decision": "reject", "reason": "ages are wrong" }),
        )
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let view = fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!(view["try"], 2);
    assert_eq!(view["metadata"]["review"]["reason"], "ages are wrong");
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn only_one_of_two_concurrent_reviews_succeeds() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let id = fixture.upload_text(SHORT).await;
    fixture.wait_for_status(&id, "pending_review").await;
    let approve = fixture.review(&id, json!({ "decision": "approve" }));
    let reject = fixture.review(&id, json!({ "decision": "reject", "reason": "no" }));
    let (approve, reject) = tokio::join!(approve, reject);
    let mut codes = [approve.status.as_u16(), reject.status.as_u16()];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
}
