use axum::Router;
use axum::routing::get as route_get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_web::{Cursor, Json, Limit, Page, Problem, Query, list_id};
use serde::Deserialize;

use crate::support::{call, default_middleware, get, json, problem_summary};

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    limit: Limit,
    cursor: Option<Cursor>,
}

async fn numbers(Query(listing): Query<Listing>) -> Result<Json<Page<u32>>, Problem> {
    let after = match &listing.cursor {
        Some(cursor) => cursor.decode::<u32>("numbers")?,
        None => 0,
    };
    let rows = (after + 1..=120).take(listing.limit.rows() + 1).collect();
    Page::from_rows(rows, listing.limit, "numbers", |last| *last).map(Json)
}

fn router() -> Router {
    default_middleware(Router::new().route("/numbers", route_get(numbers)))
}

#[tokio::test]
async fn pages_neither_skip_nor_repeat_items() {
    for (limit, pages) in [(7, 18), (50, 3), (60, 2), (120, 1), (500, 1)] {
        let (mut seen, mut requests) = (Vec::new(), 0);
        let mut path = format!("/numbers?limit={limit}");
        loop {
            let page = json(call(&router(), get(&path)).await).await;
            let page: Page<u32> = serde_json::from_value(page).unwrap();
            requests += 1;
            seen.extend(page.items);
            let Some(next) = page.next_cursor else { break };
            path = format!("/numbers?limit={limit}&cursor={next}");
        }
        assert_eq!(seen, (1..=120).collect::<Vec<u32>>());
        assert_eq!(requests, pages, "limit {limit}");
    }
}

#[tokio::test]
async fn a_modified_cursor_is_rejected() {
    let good = Cursor::encode("numbers", &50_u32).unwrap().to_string();
    let mut altered = vec![
        String::new(),
        "nonsense".to_owned(),
        good[..good.len() - 1].to_owned(),
        format!("{good}A"),
        "A".repeat(5000),
        Cursor::encode("letters", &50_u32).unwrap().to_string(),
        Cursor::encode("numbers", &"fifty").unwrap().to_string(),
    ];
    let bytes = URL_SAFE_NO_PAD.decode(&good).unwrap();
    altered.extend((0..bytes.len()).map(|at| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        URL_SAFE_NO_PAD.encode(bytes)
    }));
    for cursor in altered {
        let details =
            problem_summary(call(&router(), get(&format!("/numbers?cursor={cursor}"))).await).await;
        assert_eq!(
            details,
            (400, "invalid-cursor".to_owned(), Some("cursor".to_owned())),
            "{cursor}"
        );
    }
    let fine = call(&router(), get(&format!("/numbers?cursor={good}"))).await;
    assert_eq!(json(fine).await["items"][0], 51);
}

#[test]
fn a_cursor_belongs_to_one_parent_and_one_filter() {
    let list = |part: &(&str, Option<&str>)| list_id("rows", part).unwrap();
    let here = list(&("job-1", Some("open")));
    let cursor = Cursor::encode(&here, &50_u32).unwrap();
    assert_eq!(cursor.decode::<u32>(&here).unwrap(), 50);
    for part in [
        ("job-2", Some("open")),
        ("job-1", None),
        ("job-1", Some("closed")),
    ] {
        let refused = cursor.decode::<u32>(&list(&part)).unwrap_err();
        assert_eq!(refused.details().code, "invalid-cursor", "{part:?}");
    }
    assert!(cursor.decode::<u32>("rows").is_err());
}

#[test]
fn a_limit_is_one_to_five_hundred() {
    assert_eq!(Limit::default().rows(), 50);
    assert_eq!(Limit::new(500).unwrap().rows_to_fetch(), 501);
    assert!(Limit::new(0).is_none() && Limit::new(501).is_none() && Limit::new(u64::MAX).is_none());
}
