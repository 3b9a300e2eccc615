//! Text and PDF. Anything else is rejected, or fails permanently with a clear reason.

use serde_json::{Value, json};

use crate::support::{Fixture, settings};

async fn upload_until_dead(fixture: &Fixture, media: &str, content: &[u8]) -> Value {
    let id = fixture.upload(media, content).await;
    let view = fixture.wait_for_status(&id, "dead_letter").await;
    let events = fixture.events(&id).await;
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
async fn stored_document_without_text_is_a_permanent_failure() {
    let fixture = Fixture::new().await;
    for content in [b"".as_slice(), b" \n\t \n", b"\xEF\xBB\xBF", b"---\n***\n"] {
        // The upload would be rejected, so the document is replaced in the store.
        let id = fixture.upload_text("text").await;
        let key = postrider_protocols::document::document_key(id.parse().unwrap());
        fixture.store.put(&key, content.into()).await.unwrap();
        let stop = tokio_util::sync::CancellationToken::new();
        fixture.start_worker_until(&settings(json!({})), stop.clone());
        let view = fixture.wait_for_status(&id, "dead_letter").await;
        stop.cancel();
        let events = fixture.events(&id).await;
        assert!(
            events.len() == 1 && events[0].1 == 1 && events[0].2 == "dead_letter",
            "{events:?}"
        );
        assert_eq!(view["metadata"]["error"]["category"], "empty_document");
        assert_eq!(view["error_reason"], "the document has no text");
    }
}

#[tokio::test]
async fn unreadable_pdf_is_a_permanent_failure() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let whole = include_bytes!("samples/lung.pdf");
    let cut = &whole[..whole.len() / 3];
    for content in [b"%PDF-".as_slice(), b"%PDF-1.7\ngarbage", cut] {
        let view = upload_until_dead(&fixture, "application/pdf", content).await;
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

/// Deeply nested arrays: a recursive parser overflows its stack.
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
async fn hostile_pdf_fails_in_bounded_time_and_the_worker_survives() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(
        json!({ "pdf": { "timeout": "3s", "memory": "512MiB" } }),
    ));
    for content in [deep(), circular()] {
        let view = upload_until_dead(&fixture, "application/pdf", &content).await;
        let category = view["metadata"]["error"]["category"].as_str().unwrap();
        assert!(
            ["unreadable_document", "empty_document"].contains(&category),
            "{view}"
        );
    }
    let id = fixture
        .upload(
            "application/pdf",
            include_bytes!("samples/lung.pdf").as_slice(),
        )
        .await;
    fixture.wait_for_status(&id, "pending_review").await;
}

#[tokio::test]
async fn pdf_yields_the_same_criteria_as_its_text() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
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
        let from_pdf = fixture.upload("application/pdf", pdf).await;
        let from_text = fixture.upload_text(text).await;
        let from_pdf = fixture.wait_for_status(&from_pdf, "pending_review").await;
        let from_text = fixture.wait_for_status(&from_text, "pending_review").await;
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
