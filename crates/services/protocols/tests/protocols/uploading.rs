//! A document is accepted together with its event, or not at all.

use axum::http::{Method, StatusCode};
use postrider_protocols::cleaning;
use postrider_testkit::crash;
use serde_json::{Value, json};

use crate::support::{Answer, Fixture, SHORT, settings};

async fn post(fixture: &Fixture, path: &str, media: &str, content: &[u8]) -> Answer {
    fixture
        .raw(Method::POST, path, Some((media, content.to_vec())))
        .await
}

fn form(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut form = String::new();
    for (head, content) in fields {
        form.push_str(&format!(
            "--X\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n"
        ));
    }
    form.push_str("--X--\r\n");
    form.into_bytes()
}

const FORM: &str = "multipart/form-data; boundary=X";

#[tokio::test]
async fn upload_returns_an_id_and_enqueues_one_event() {
    let fixture = Fixture::new().await;
    let answer = post(
        &fixture,
        "/protocols?title=Trial%20%20One",
        "text/plain; charset=utf-8",
        SHORT.as_bytes(),
    )
    .await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let view = answer.json();
    assert_eq!(
        (&view["title"], &view["status"]),
        (&json!("Trial One"), &json!("uploaded"))
    );
    assert_eq!(view.as_object().unwrap().len(), 3);
    let id = view["id"].as_str().unwrap();
    let expected = ("PROTOCOL_UPLOADED".to_owned(), 1, "pending".to_owned(), 0);
    assert_eq!(fixture.events(id).await, [expected]);
    let whole = fixture.get(id).await;
    assert_eq!(
        (&whole["criteria"], &whole["error_reason"]),
        (&json!([]), &Value::Null)
    );
    assert_eq!(whole["metadata"]["document"]["size"], SHORT.len());
    let document = fixture
        .call(Method::GET, &format!("/protocols/{id}/document"), None)
        .await;
    assert_eq!(document.text(), SHORT);
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn form_with_title_and_file_is_accepted() {
    let fixture = Fixture::new().await;
    let content = form(&[
        ("name=\"title\"", "From a form"),
        ("name=\"file\"; filename=\"trial.txt\"", SHORT),
    ]);
    let answer = post(&fixture, "/protocols", FORM, &content).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let view = fixture.get(&id).await;
    assert_eq!(view["title"], "From a form");
    assert_eq!(view["metadata"]["document"]["file_name"], "trial.txt");
    let pdf = form(&[
        ("name=\"title\"", "A PDF"),
        (
            "name=\"file\"; filename=\"x\"\r\nContent-Type: application/pdf",
            "%PDF-1.4",
        ),
    ]);
    let answer = post(&fixture, "/protocols", FORM, &pdf).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
}

#[tokio::test]
async fn invalid_upload_is_rejected_by_field_and_leaves_nothing_behind() {
    let fixture = Fixture::with(&settings(json!({ "max_size": "1KiB" }))).await;
    let text = b"text".as_slice();
    let long = format!("/protocols?title={}", "x".repeat(501));
    let cases: Vec<(&str, &str, Vec<u8>, u16, &str)> = vec![
        ("/protocols", "text/plain", text.to_vec(), 422, "title"),
        (
            "/protocols?title=%20",
            "text/plain",
            text.to_vec(),
            422,
            "title",
        ),
        (
            "/protocols?title=%07",
            "text/plain",
            text.to_vec(),
            422,
            "title",
        ),
        (&long, "text/plain", text.to_vec(), 422, "title"),
        (
            "/protocols?titel=T",
            "text/plain",
            text.to_vec(),
            400,
            "titel",
        ),
        (
            "/protocols?title=T",
            "image/png",
            text.to_vec(),
            415,
            "content-type",
        ),
        (
            "/protocols?title=T",
            "text/plain",
            vec![b'x'; 2000],
            413,
            "",
        ),
        (
            "/protocols?title=T",
            "text/plain",
            Vec::new(),
            422,
            "document",
        ),
        (
            "/protocols?title=T",
            "text/plain",
            vec![0x13; 500],
            422,
            "document",
        ),
        (
            "/protocols?title=T",
            "application/pdf",
            text.to_vec(),
            422,
            "document",
        ),
        (
            "/protocols?title=T",
            FORM,
            form(&[("name=\"file\"; filename=\"a.txt\"", "")]),
            422,
            "document",
        ),
        (
            "/protocols?title=T",
            FORM,
            form(&[("name=\"other\"", "x")]),
            422,
            "other",
        ),
        ("/protocols?title=T", FORM, form(&[]), 422, "file"),
        (
            "/protocols?title=T",
            FORM,
            b"--X\r\nbroken".to_vec(),
            422,
            "",
        ),
        (
            "/protocols?title=T",
            FORM,
            form(&[("name=\"file\"; filename=\"a.doc\"", "x")]),
            415,
            "content-type",
        ),
        (
            "/protocols",
            FORM,
            form(&[("name=\"file\"; filename=\"a.txt\"", "x")]),
            422,
            "title",
        ),
    ];
    for (path, media, content, status, field) in cases {
        let answer = post(&fixture, path, media, &content).await;
        let problem = answer.json();
        assert_eq!(answer.status.as_u16(), status, "{path} {media}: {problem}");
        if !field.is_empty() {
            assert_eq!(problem["errors"][0]["field"], field, "{problem}");
        }
        if field == "document" {
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("upload plain text"), "{detail}");
        }
    }
    assert_eq!(
        fixture
            .query_number("select count(*) from protocols.protocol")
            .await,
        0
    );
    assert_eq!(
        fixture
            .query_number("select count(*) from protocols.outbox")
            .await,
        0
    );
}

#[tokio::test]
async fn cleaner_removes_the_document_of_an_upload_that_did_not_commit() {
    let fixture = Fixture::new().await;
    let kept = fixture.upload_text("kept").await;
    let trap = crash::at("protocols.before_accept").error();
    let answer = post(&fixture, "/protocols?title=T", "text/plain", b"lost").await;
    drop(trap);
    assert!(answer.status.is_server_error());
    assert_eq!(
        fixture
            .query_number("select count(*) from protocols.protocol")
            .await,
        1
    );
    let day = std::time::Duration::from_secs(86_400);
    assert_eq!(
        cleaning::remove_orphans_older_than(&fixture.pool, &fixture.store, day)
            .await
            .unwrap(),
        0
    );
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let now = std::time::Duration::ZERO;
    assert_eq!(
        cleaning::remove_orphans_older_than(&fixture.pool, &fixture.store, now)
            .await
            .unwrap(),
        1
    );
    let document = fixture
        .call(Method::GET, &format!("/protocols/{kept}/document"), None)
        .await;
    assert_eq!(document.text(), "kept");
}

#[tokio::test]
async fn listing_is_paged_and_filtered() {
    let fixture = Fixture::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(fixture.upload_text(&format!("text {n}")).await);
    }
    ids.reverse();
    let mut seen = Vec::new();
    let mut path = "/protocols?limit=2".to_owned();
    loop {
        let page = fixture.call(Method::GET, &path, None).await.json();
        let items = page["items"].as_array().unwrap();
        seen.extend(
            items
                .iter()
                .map(|item| item["id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/protocols?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    let other = path.replace("limit=2", "status=uploaded");
    let refused = fixture.call(Method::GET, &other, None).await;
    assert_eq!(
        refused.status,
        StatusCode::BAD_REQUEST,
        "a cursor of another filter"
    );
    let page = fixture
        .call(Method::GET, "/protocols?status=complete", None)
        .await
        .json();
    assert_eq!(page["items"], json!([]));
    let bad = fixture
        .call(Method::GET, "/protocols?status=done", None)
        .await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn malformed_or_unknown_id_is_not_found() {
    let fixture = Fixture::new().await;
    for path in [
        "/protocols/abc",
        "/protocols/01890a5d-ac96-774b-bcce-b302099a8057",
    ] {
        let answer = fixture.call(Method::GET, path, None).await;
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (StatusCode::NOT_FOUND, json!("protocol-not-found"))
        );
        assert_eq!(
            fixture
                .call(Method::POST, &format!("{path}/retry"), None)
                .await
                .status,
            StatusCode::NOT_FOUND
        );
        let page = fixture
            .call(Method::GET, &format!("{path}/page"), None)
            .await;
        assert_eq!(page.status, StatusCode::NOT_FOUND);
    }
}
