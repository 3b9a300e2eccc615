//! Text and PDF; and what is neither is a clear, permanent failure and never a loop.

use serde_json::{Value, json};

use crate::support::{House, settings};

async fn given_up(house: &House, media: &str, content: &[u8]) -> Value {
    let id = house.upload(media, content).await;
    let view = house.stands(&id, "dead_letter").await;
    let events = house.events(&id).await;
    let once = (
        "PROTOCOL_UPLOADED".to_owned(),
        1,
        "dead_letter".to_owned(),
        0,
    );
    assert!(
        events.len() == 1 && events[0].1 == once.1 && events[0].2 == once.2,
        "{events:?}"
    );
    view
}

#[tokio::test]
async fn an_empty_document_is_a_permanent_failure() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    for content in [b"".as_slice(), b" \n\t \n", b"\xEF\xBB\xBF", b"---\n***\n"] {
        let view = given_up(&house, "text/plain", content).await;
        assert_eq!(view["metadata"]["error"]["category"], "empty_document");
        assert_eq!(view["error_reason"], "the document has no text");
    }
}

#[tokio::test]
async fn an_unreadable_pdf_is_a_permanent_failure() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    let whole = include_bytes!("samples/lung.pdf");
    let cut = &whole[..whole.len() / 3];
    for content in [b"no PDF at all".as_slice(), b"%PDF-1.7\ngarbage", b"", cut] {
        let view = given_up(&house, "application/pdf", content).await;
        let category = view["metadata"]["error"]["category"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            ["unreadable_document", "empty_document"].contains(&category.as_str()),
            "{view}"
        );
    }
}

/// Nested arrays without end: a reader that recurses runs out of its stack.
fn deep() -> Vec<u8> {
    let mut pdf = b"%PDF-1.4\n1 0 obj\n".to_vec();
    pdf.extend(std::iter::repeat_n(b'[', 2_000_000));
    pdf.extend(b"\nendobj\ntrailer << /Root 1 0 R >>\nstartxref\n9\n%%EOF");
    pdf
}

/// Pages that are their own children.
fn circular() -> Vec<u8> {
    b"%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n\
      2 0 obj << /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 /Parent 2 0 R >> endobj\n\
      trailer << /Root 1 0 R /Size 3 >>\nstartxref\n0\n%%EOF"
        .to_vec()
}

#[tokio::test]
async fn a_hostile_pdf_ends_in_bounded_time_and_the_worker_lives() {
    let house = House::new().await;
    house.work(&settings(
        json!({ "pdf": { "timeout": "3s", "memory": "512MiB" } }),
    ));
    for content in [deep(), circular()] {
        let view = given_up(&house, "application/pdf", &content).await;
        let category = view["metadata"]["error"]["category"].as_str().unwrap();
        assert!(
            ["unreadable_document", "empty_document"].contains(&category),
            "{view}"
        );
    }
    let id = house
        .upload(
            "application/pdf",
            include_bytes!("samples/lung.pdf").as_slice(),
        )
        .await;
    house.stands(&id, "pending_review").await;
}

#[tokio::test]
async fn a_pdf_gives_the_same_criteria_as_its_text() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    for (pdf, text) in [
        (
            include_bytes!("samples/lung.pdf").as_slice(),
            include_str!("samples/lung.txt"),
        ),
        (
            include_bytes!("samples/glucose.pdf").as_slice(),
            include_str!("samples/glucose.txt"),
        ),
    ] {
        let from_pdf = house.upload("application/pdf", pdf).await;
        let from_text = house.upload_text(text).await;
        let from_pdf = house.stands(&from_pdf, "pending_review").await;
        let from_text = house.stands(&from_text, "pending_review").await;
        let words = |view: &Value| -> Vec<(Value, Value)> {
            let criteria = view["criteria"].as_array().unwrap();
            criteria
                .iter()
                .map(|c| (c["kind"].clone(), c["text"].clone()))
                .collect()
        };
        assert_eq!(words(&from_pdf), words(&from_text));
        assert!(!words(&from_pdf).is_empty());
    }
}
