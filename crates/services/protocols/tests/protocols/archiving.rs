//! Old dead letters leave the listing, whether or not they are opened.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use postrider::lease::{Operator, Queue};
use postrider_protocols::{OUTBOX, cleaning};
use serde_json::json;

use crate::support::{Fixture, settings};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

async fn dead(fixture: &Fixture) -> String {
    let id = fixture.upload("application/pdf", "%PDF-garbage").await;
    fixture.wait_for_status(&id, "dead_letter").await;
    id
}

async fn listed(fixture: &Fixture, query: &str) -> usize {
    let page = fixture
        .call(Method::GET, &format!("/protocols{query}"), None)
        .await
        .json();
    page["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn get_archives_a_dead_letter_after_seven_days_and_not_before() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let id = dead(&fixture).await;
    fixture
        .execute("update protocols.protocol set updated_at = now() - interval '6 days 23 hours'")
        .await;
    assert_eq!(fixture.get(&id).await["status"], "dead_letter");
    fixture
        .execute("update protocols.protocol set updated_at = now() - interval '7 days 1 second'")
        .await;
    let view = fixture.get(&id).await;
    assert_eq!(view["status"], "archived");
    assert!(
        view["error_reason"].is_string() && view["metadata"]["error"].is_object(),
        "{view}"
    );
    assert_eq!(
        (
            listed(&fixture, "").await,
            listed(&fixture, "?status=archived").await
        ),
        (0, 1)
    );
    assert_eq!(fixture.retry(&id).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        fixture
            .query_number("select count(*) from protocols.outbox")
            .await,
        0,
        "its dead event was archived, too"
    );
    assert_eq!(
        fixture
            .query_number("select count(*) from postrider.archive")
            .await,
        1
    );
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn protocol_can_be_retried_after_its_dead_event_was_archived_by_hand() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let id = dead(&fixture).await;
    let event = fixture
        .query_number("select id from protocols.outbox")
        .await;
    let mut tx = fixture.pool.begin().await.unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    let archived = queue
        .archive(&mut tx, &Operator::new("somebody"), &[event])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(archived, [event]);
    assert_eq!(fixture.get(&id).await["status"], "dead_letter");
    fixture
        .execute("update protocols.protocol set media_type = 'text/plain'")
        .await;
    assert_eq!(fixture.retry(&id).await.status, StatusCode::OK);
    assert_eq!(
        fixture.wait_for_status(&id, "pending_review").await["try"],
        2
    );
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn cleaner_archives_old_dead_letters() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let old = dead(&fixture).await;
    fixture
        .execute("update protocols.protocol set updated_at = now() - interval '8 days'")
        .await;
    let young = dead(&fixture).await;
    assert_eq!(
        cleaning::archive_dead_letters(&fixture.pool, WEEK)
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        (
            listed(&fixture, "").await,
            listed(&fixture, "?status=archived").await
        ),
        (1, 1)
    );
    assert_eq!(fixture.get(&old).await["status"], "archived");
    assert_eq!(fixture.get(&young).await["status"], "dead_letter");
    assert_eq!(
        cleaning::archive_dead_letters(&fixture.pool, WEEK)
            .await
            .unwrap(),
        0
    );
}

#[tokio::test]
async fn only_one_of_a_concurrent_archive_and_retry_succeeds() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    for _ in 0..5 {
        let id = dead(&fixture).await;
        sqlx::query("update protocols.protocol set updated_at = now() - interval '8 days' where id = $1::uuid")
            .bind(&id)
            .execute(&fixture.pool)
            .await
            .unwrap();
        let (retry, archived) = tokio::join!(
            fixture.retry(&id),
            cleaning::archive_dead_letters(&fixture.pool, WEEK)
        );
        match retry.status {
            StatusCode::OK => assert_eq!(archived.unwrap(), 0),
            status => {
                assert_eq!(status, StatusCode::BAD_REQUEST);
                assert_eq!(archived.unwrap(), 1);
            }
        }
    }
    fixture.wait_until_idle().await;
    fixture.assert_invariants().await;
}
