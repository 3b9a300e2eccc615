//! What was given up long ago leaves the listing, whether or not somebody opens it.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use postrider::lease::{Operator, Queue};
use postrider_protocols::{OUTBOX, cleaning};
use serde_json::json;

use crate::support::{House, settings};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

async fn dead(house: &House) -> String {
    let id = house.upload("application/pdf", "no PDF").await;
    house.stands(&id, "dead_letter").await;
    id
}

async fn listed(house: &House, query: &str) -> usize {
    let page = house
        .call(Method::GET, &format!("/protocols{query}"), None)
        .await
        .json();
    page["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn opening_a_dead_letter_archives_it_after_seven_days_and_not_before() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    let id = dead(&house).await;
    house
        .execute("update protocols.protocol set updated_at = now() - interval '6 days 23 hours'")
        .await;
    assert_eq!(house.get(&id).await["status"], "dead_letter");
    house
        .execute("update protocols.protocol set updated_at = now() - interval '7 days 1 second'")
        .await;
    let view = house.get(&id).await;
    assert_eq!(view["status"], "archived");
    assert!(
        view["error_reason"].is_string() && view["metadata"]["error"].is_object(),
        "{view}"
    );
    assert_eq!(
        (
            listed(&house, "").await,
            listed(&house, "?status=archived").await
        ),
        (0, 1)
    );
    assert_eq!(house.retry(&id).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        house.number("select count(*) from protocols.outbox").await,
        0,
        "its dead letter went along"
    );
    assert_eq!(
        house.number("select count(*) from postrider.archive").await,
        1
    );
    house.assert_sound().await;
}

#[tokio::test]
async fn a_dead_event_that_is_archived_by_hand_leaves_its_protocol_to_be_retried() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    let id = dead(&house).await;
    let event = house.number("select id from protocols.outbox").await;
    let mut tx = house.pool.begin().await.unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    let archived = queue
        .archive(&mut tx, &Operator::new("somebody"), &[event])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(archived, [event]);
    assert_eq!(house.get(&id).await["status"], "dead_letter");
    house
        .execute("update protocols.protocol set media_type = 'text/plain'")
        .await;
    assert_eq!(house.retry(&id).await.status, StatusCode::OK);
    assert_eq!(house.stands(&id, "pending_review").await["try"], 2);
    house.assert_sound().await;
}

#[tokio::test]
async fn the_sweep_archives_without_anybody_looking() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    let old = dead(&house).await;
    house
        .execute("update protocols.protocol set updated_at = now() - interval '8 days'")
        .await;
    let young = dead(&house).await;
    assert_eq!(cleaning::sweep(house.pool.clone(), WEEK).await.unwrap(), 1);
    assert_eq!(
        (
            listed(&house, "").await,
            listed(&house, "?status=archived").await
        ),
        (1, 1)
    );
    assert_eq!(house.get(&old).await["status"], "archived");
    assert_eq!(house.get(&young).await["status"], "dead_letter");
    assert_eq!(cleaning::sweep(house.pool.clone(), WEEK).await.unwrap(), 0);
}

#[tokio::test]
async fn a_sweep_and_a_retry_at_once_leave_one_of_the_two() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    for _ in 0..5 {
        let id = dead(&house).await;
        sqlx::query("update protocols.protocol set updated_at = now() - interval '8 days' where id = $1::uuid")
            .bind(&id)
            .execute(&house.pool)
            .await
            .unwrap();
        let (retry, swept) =
            tokio::join!(house.retry(&id), cleaning::sweep(house.pool.clone(), WEEK));
        match retry.status {
            StatusCode::OK => assert_eq!(swept.unwrap(), 0),
            status => {
                assert_eq!(status, StatusCode::BAD_REQUEST);
                assert_eq!(swept.unwrap(), 1);
            }
        }
    }
    house.settled().await;
    house.assert_sound().await;
}
