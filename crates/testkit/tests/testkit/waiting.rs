use std::time::Duration;

use postrider_testkit::{eventually, within};

#[tokio::test]
async fn waiting_ends_as_soon_as_the_condition_holds_and_returns_its_value() {
    let mut looks = 0;
    let found = eventually("the third look", async || {
        looks += 1;
        (looks == 3).then_some("found")
    })
    .await;
    assert_eq!((found, looks), ("found", 3));
}

#[tokio::test]
async fn a_missed_deadline_reports_what_was_expected_and_seen() {
    let waiting = tokio::spawn(async {
        let look = async || Err::<(), _>("2 messages wait");
        within(Duration::from_millis(50), "the outbox is empty", look).await;
    });
    let message = panic_message(waiting.await.unwrap_err());
    assert!(
        message.contains("not within 50ms: the outbox is empty"),
        "{message}"
    );
    assert!(message.contains("2 messages wait"), "{message}");
    assert!(message.contains("waiting.rs"), "{message}");
}

#[tokio::test]
async fn a_hanging_check_does_not_outlive_the_deadline() {
    let waiting = tokio::spawn(async {
        let look = async || std::future::pending::<bool>().await;
        within(Duration::from_millis(50), "an answer", look).await;
    });
    let message = panic_message(waiting.await.unwrap_err());
    assert!(message.contains("an answer"), "{message}");
}

fn panic_message(error: tokio::task::JoinError) -> String {
    *error.into_panic().downcast::<String>().unwrap()
}
