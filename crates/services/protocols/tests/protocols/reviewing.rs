//! A person decides.

use axum::http::StatusCode;
use serde_json::json;

use crate::support::{House, SHORT, settings};

#[tokio::test]
async fn an_approved_protocol_is_complete_for_ever() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    let id = house.upload_text(SHORT).await;
    house.stands(&id, "pending_review").await;
    let answer = house.review(&id, json!({ "decision": "approve" })).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let view = answer.json();
    assert_eq!(view["status"], "complete");
    assert_eq!(view["metadata"]["review"]["decision"], "approve");
    assert_eq!(view["criteria"].as_array().unwrap().len(), 3);
    for decision in ["approve", "reject"] {
        let again = house
            .review(&id, json!({ "decision": decision, "reason": "again" }))
            .await;
        assert_eq!(again.status, StatusCode::CONFLICT);
        assert_eq!(again.json()["code"], "protocol-not-reviewable");
    }
    let retry = house.retry(&id).await;
    assert_eq!(
        (retry.status, retry.json()["status_now"].clone()),
        (StatusCode::BAD_REQUEST, json!("complete"))
    );
    assert_eq!(
        house
            .number("select count(*) from postrider.audit where action = 'approve'")
            .await,
        1
    );
}

#[tokio::test]
async fn a_rejected_protocol_goes_back_to_extraction_with_the_reason_on_record() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    let id = house.upload_text(SHORT).await;
    house.stands(&id, "pending_review").await;
    for body in [
        json!({ "decision": "reject" }),
        json!({ "decision": "reject", "reason": "  " }),
    ] {
        let refused = house.review(&id, body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(refused.json()["errors"][0]["field"], "/reason");
    }
    let answer = house
        .review(
            &id,
            json!({ "decision": "reject", "reason": "ages are wrong" }),
        )
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let view = house.stands(&id, "pending_review").await;
    assert_eq!(view["try"], 2);
    assert_eq!(view["metadata"]["review"]["reason"], "ages are wrong");
    house.assert_sound().await;
}

#[tokio::test]
async fn two_reviews_at_once_are_one() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    let id = house.upload_text(SHORT).await;
    house.stands(&id, "pending_review").await;
    let approve = house.review(&id, json!({ "decision": "approve" }));
    let reject = house.review(&id, json!({ "decision": "reject", "reason": "no" }));
    let (approve, reject) = tokio::join!(approve, reject);
    let mut codes = [approve.status.as_u16(), reject.status.as_u16()];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
}
