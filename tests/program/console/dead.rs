//! Dead letters in the console.

use postrider_testkit::within;

use super::{Fixture, TIMEOUT};

const AUDIT: &str =
    "select actor || ' ' || action || ' ' || coalesce(reason, '') from postrider.audit order by id";

async fn fix_cause(fixture: &Fixture) {
    let rows =
        "insert into public.prices select k, 1.5 from unnest(array['ONE', 'TWO', 'THREE']) k";
    sqlx::query(rows).execute(&fixture.db.pool()).await.unwrap();
}

async fn audit(fixture: &Fixture) -> Vec<String> {
    let pool = fixture.db.pool();
    sqlx::query_scalar(AUDIT).fetch_all(&pool).await.unwrap()
}

/// Waits until there are no dead letters.
async fn until_none_is_dead(fixture: &Fixture) {
    fixture.open_until("/dead", &["No dead letters."]).await;
}

#[tokio::test]
async fn dead_letter_can_be_redriven() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    fixture.dead_letter("ONE").await;
    fix_cause(&fixture).await;
    let page = &fixture.page;
    fixture.open("/").await;
    page.follow("a.tile[href='/dead']").await;
    page.follow("tbody a[href^='/dead/exports.export_job_input/']")
        .await;
    assert!(page.text().await.contains("NO_DATA"));
    page.follow("button[value=redrive]").await;
    let asked = page.text().await;
    assert!(asked.contains("Redrive 1 dead letter?"), "{asked}");
    assert!(
        audit(&fixture).await.is_empty(),
        "nothing changes before the confirmation"
    );
    page.fill("input[name=reason]", "prices are there now")
        .await;
    page.follow("#yes").await;
    until_none_is_dead(&fixture).await;
    assert_eq!(
        audit(&fixture).await,
        ["local redrive prices are there now"]
    );
    fixture.assert_no_errors();
}

#[tokio::test]
async fn only_selected_dead_letters_are_redriven() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    for index in ["ONE", "TWO", "THREE"] {
        fixture.dead_letter(index).await;
    }
    fix_cause(&fixture).await;
    let page = &fixture.page;
    fixture.open("/dead?filter=service:exports").await;
    page.click("tbody tr:nth-child(1) input[name=item]").await;
    page.click("tbody tr:nth-child(3) input[name=item]").await;
    page.follow("button[value=redrive]").await;
    let asked = page.text().await;
    assert!(asked.contains("Redrive 2 dead letters?"), "{asked}");
    page.fill("input[name=reason]", "two of three").await;
    page.follow("#yes").await;
    within(TIMEOUT, "one is left", async || {
        let left = fixture.serving.json("/dead-letters").await;
        (left["items"].as_array().map(Vec::len) == Some(1)).then_some(())
    })
    .await;
    fixture.assert_no_errors();
}

#[tokio::test]
async fn all_matching_dead_letters_are_archived_with_a_reason() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    for index in ["ONE", "TWO"] {
        fixture.dead_letter(index).await;
    }
    let page = &fixture.page;
    fixture.open("/dead?filter=code:NO_DATA").await;
    page.follow("button[value='archive all']").await;
    let asked = page.text().await;
    assert!(asked.contains("Archive 2 dead letters?"), "{asked}");
    page.eval("document.querySelector('[name=reason]').required = false")
        .await;
    page.follow("#yes").await;
    assert!(page.text().await.contains("Enter a reason"));
    page.fill("input[name=reason]", "too late for them").await;
    page.follow("#yes").await;
    until_none_is_dead(&fixture).await;
    assert!(
        audit(&fixture)
            .await
            .contains(&"local archive too late for them".to_owned())
    );
}

#[tokio::test]
async fn empty_selection_is_reported_and_changes_nothing() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    fixture.dead_letter("ONE").await;
    fixture.open("/dead").await;
    fixture.page.follow("button[value=archive]").await;
    assert!(fixture.page.text().await.contains("Nothing is selected"));
    assert!(audit(&fixture).await.is_empty());
}
