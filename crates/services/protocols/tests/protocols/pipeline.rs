//! From a document to criteria that are pending review.

use axum::http::{Method, StatusCode};
use serde_json::json;

use crate::support::{Fixture, Reply, SHORT, StageServer, settings, with_stages};

#[tokio::test]
async fn built_in_stages_process_a_text_up_to_review() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let id = fixture.upload_text(SHORT).await;
    let view = fixture.wait_for_status(&id, "pending_review").await;
    let criteria = view["criteria"].as_array().unwrap();
    assert_eq!(criteria.len(), 3, "{view}");
    assert_eq!(criteria[0]["age"], json!({ "min": 18.0, "unit": "years" }));
    assert_eq!(criteria[1]["terms"][0]["label"], "Type 2 diabetes mellitus");
    assert_eq!(
        (&criteria[2]["kind"], &criteria[2]["terms"][0]["text"]),
        (&json!("exclusion"), &json!("Pregnancy"))
    );
    assert_eq!(
        view["metadata"]["extraction"],
        json!({ "stage": "built-in", "criteria": 3 })
    );
    let events = fixture.events(&id).await;
    assert!(
        events.iter().all(|event| event.2 == "published"),
        "{events:?}"
    );
    assert_eq!(events.len(), 2);
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn document_without_criteria_goes_to_review_without_any() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let id = fixture.upload_text("A letter about the weather.").await;
    let view = fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!(view["criteria"], json!([]));
}

#[tokio::test]
async fn stage_services_get_the_documented_request_once_each() {
    let fixture = Fixture::new().await;
    let (extraction, extraction_url) = StageServer::start(|_, _| Reply::criteria()).await;
    let (grounding, grounding_url) = StageServer::start(|_, call| {
        Reply::status(200).body(json!({ "criteria": call["criteria"] }))
    })
    .await;
    fixture.start_worker(&with_stages(&extraction_url, &grounding_url, json!({})));
    let id = fixture.upload_text("the text").await;
    let view = fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!(view["criteria"][0]["terms"][0]["code"], "X1");
    let calls = extraction.calls();
    assert_eq!(
        calls,
        [json!({ "protocol_id": id, "try": 1, "title": "A trial", "text": "the text" })]
    );
    let calls = grounding.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        calls[0]["criteria"][1],
        json!({ "kind": "exclusion", "text": "Pregnancy", "terms": [] })
    );
}

#[tokio::test]
async fn third_failure_makes_a_dead_letter_with_the_documented_metadata() {
    let fixture = Fixture::new().await;
    let (server, url) = StageServer::start(|_, _| Reply::status(500)).await;
    fixture.start_worker(&with_stages(&url, "", json!({})));
    let id = fixture.upload_text("text").await;
    let view = fixture.wait_for_status(&id, "dead_letter").await;
    assert_eq!(view["error_reason"], "Maximum retries exceeded");
    let error = json!({ "category": "pipeline_failed", "reason": "Maximum retries exceeded", "retry_count": 3 });
    assert_eq!(view["metadata"]["error"], error);
    assert_eq!(view["metadata"]["last_failure"]["code"], "500");
    assert_eq!(server.calls().len(), 3);
    let events = fixture.events(&id).await;
    assert_eq!(
        events,
        [(
            "PROTOCOL_UPLOADED".to_owned(),
            1,
            "dead_letter".to_owned(),
            3
        )]
    );
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn grounding_failure_retries_only_grounding() {
    let fixture = Fixture::new().await;
    let (extraction, extraction_url) = StageServer::start(|_, _| Reply::criteria()).await;
    let (grounding, grounding_url) = StageServer::start(|number, _| match number {
        0 => Reply::status(500),
        1 => Reply::status(200).body(json!({ "criteria": "nonsense" })),
        _ => Reply::criteria(),
    })
    .await;
    fixture.start_worker(&with_stages(&extraction_url, &grounding_url, json!({})));
    let id = fixture.upload_text("text").await;
    fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!((extraction.calls().len(), grounding.calls().len()), (1, 3));
}

#[tokio::test]
async fn failed_step_is_visible_while_it_waits_for_its_retry() {
    let fixture = Fixture::new().await;
    let (_, extraction) = StageServer::start(|_, _| Reply::criteria()).await;
    let (_, grounding) = StageServer::start(|_, _| Reply::status(500)).await;
    fixture.start_worker(&with_stages(
        &extraction,
        &grounding,
        json!({ "retry": { "initial_delay": "1h" } }),
    ));
    let id = fixture.upload_text("text").await;
    let view = fixture.wait_for_status(&id, "grounding_failed").await;
    assert_eq!(
        view["error_reason"],
        "the grounding service answered with status 500"
    );
    let failed = ("CRITERIA_EXTRACTED".to_owned(), 1, "failed".to_owned(), 1);
    assert_eq!(fixture.events(&id).await[1], failed);
}

#[tokio::test]
async fn rejection_by_a_stage_is_permanent_with_its_own_reason_and_category() {
    let fixture = Fixture::new().await;
    let (server, url) = StageServer::start(|_, _| Reply::status(422)).await;
    fixture.start_worker(&with_stages(&url, "", json!({})));
    let id = fixture.upload_text("text").await;
    let view = fixture.wait_for_status(&id, "dead_letter").await;
    let error = &view["metadata"]["error"];
    assert_eq!(
        (&error["category"], &error["retry_count"]),
        (&json!("stage_rejected"), &json!(0))
    );
    assert!(
        view["error_reason"]
            .as_str()
            .unwrap()
            .contains("status 422"),
        "{view}"
    );
    assert_eq!(error["reason"], view["error_reason"]);
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn retry_after_is_honoured() {
    for status in [500, 503, 429] {
        let fixture = Fixture::new().await;
        let (_, url) =
            StageServer::start(move |_, _| Reply::status(status).retry_after(1800)).await;
        fixture.start_worker(&with_stages(&url, "", json!({})));
        let id = fixture.upload_text("text").await;
        fixture.wait_for_status(&id, "extraction_failed").await;
        let far = fixture
            .query_number(
                "select count(*) from protocols.outbox where due > now() + interval '25 minutes'",
            )
            .await;
        assert_eq!(far, 1, "due when the service said, after {status}");
    }
}

#[tokio::test]
async fn page_shows_the_criteria_and_contains_no_script() {
    let fixture = Fixture::new().await;
    let (_, url) = StageServer::start(|_, _| {
        Reply::status(200).body(json!({ "criteria": [
            { "kind": "inclusion", "text": "<script>alert(1)</script>", "number": "1" },
            { "kind": "exclusion", "text": "Age > 80", "age": { "min": 80, "above_min": true }, "negated": true },
        ] }))
    })
    .await;
    fixture.start_worker(&with_stages(&url, "", json!({})));
    let answer = fixture
        .raw(
            Method::POST,
            "/protocols?title=%3Cb%3ETrial%3C/b%3E",
            Some(("text/plain", b"text".to_vec())),
        )
        .await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    fixture.wait_for_status(&id, "pending_review").await;
    let page = fixture
        .call(Method::GET, &format!("/protocols/{id}/page"), None)
        .await;
    assert_eq!(page.status, StatusCode::OK);
    let policy = page.headers["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        policy.contains("default-src 'self'") && !policy.contains("unsafe"),
        "{policy}"
    );
    let text = page.text();
    assert!(
        !text.contains("<script") && !text.contains("<b>Trial"),
        "{text}"
    );
    for part in [
        "alert(1)",
        "Trial",
        "pending_review",
        "Age &#62; 80",
        "&#62; 80 years",
        "protocols review",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
