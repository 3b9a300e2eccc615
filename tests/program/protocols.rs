//! Protocols from outside: the command line, a PDF parsed by the program itself, and a kill in each step.

use std::{
    process::Command,
    sync::{Arc, Mutex},
};

use axum::{Json, Router, extract::State, routing::post};
use postrider_testkit::{Program, TestDb, crash, eventually};
use serde_json::{Value, json};

use crate::program::{Serving, data_dir, postrider, run_with, stderr, stdout};

const PDF: &[u8] =
    include_bytes!("../../crates/services/protocols/tests/protocols/samples/glucose.pdf");

#[tokio::test]
async fn command_line_uploads_shows_lists_and_reviews_a_protocol() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let server = serving.base().to_owned();
    let protocols = async |more: &[&str]| {
        let output =
            run_with(&[&["protocols", "--server", &server, "--json"], more].concat()).await;
        let text = stdout(&output);
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        (output.status.code(), answer)
    };
    let file = dir.path().join("glucose.pdf");
    std::fs::write(&file, PDF).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let (code, view) = protocols(&["upload", &file, "--wait"]).await;
    assert_eq!(
        (code, &view["status"]),
        (Some(0), &json!("pending_review")),
        "{view}"
    );
    assert_eq!(view["title"], "glucose");
    assert_eq!(view["criteria"].as_array().unwrap().len(), 17);
    let id = view["id"].as_str().unwrap().to_owned();
    assert_eq!(protocols(&["show", &id]).await.1, view);
    let (_, page) = protocols(&["list", "--status", "pending_review"]).await;
    assert_eq!(page["items"][0]["id"], id.as_str());
    assert_eq!(
        protocols(&["retry", &id]).await.0,
        Some(7),
        "it has not failed"
    );
    let (_, view) = protocols(&["review", &id, "--reject", "--reason", "once more"]).await;
    assert_eq!(view["try"], 2);
    eventually("it waits for a review again", async || {
        protocols(&["show", &id]).await.1["status"] == "pending_review"
    })
    .await;
    let (code, view) = protocols(&["review", &id, "--approve"]).await;
    assert_eq!((code, &view["status"]), (Some(0), &json!("complete")));

    let broken = dir.path().join("broken.pdf");
    std::fs::write(&broken, "%PDF-1.7 and nothing else").unwrap();
    let (code, view) =
        protocols(&["upload", broken.to_str().unwrap(), "--title", "B", "--wait"]).await;
    assert_eq!(
        (code, &view["status"]),
        (Some(1), &json!("dead_letter")),
        "{view}"
    );
    let (code, queued) = protocols(&["retry", view["id"].as_str().unwrap()]).await;
    assert_eq!((code, &queued["status"]), (Some(0), &json!("retry_queued")));
}

#[tokio::test]
async fn upload_of_a_file_that_is_neither_text_nor_pdf_is_rejected_with_a_sentence_that_says_so() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let random: Vec<u8> = (0..4_000_u32).map(|n| (n * n / 7 % 251) as u8).collect();
    for (name, content, problem) in [
        ("empty.txt", Vec::new(), "is empty"),
        ("blank.txt", b" \n\n".to_vec(), "has no text"),
        ("random.bin", random, "is binary data"),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, content).unwrap();
        let file = file.to_str().unwrap();
        let output = run_with(&["protocols", "--server", serving.base(), "upload", file]).await;
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(7), "{name}: {message}");
        for part in [problem, "plain text", "PDF", "422"] {
            assert!(message.contains(part), "{name}: {part} is not in {message}");
        }
    }
    let output = run_with(&["protocols", "--server", serving.base(), "list", "--json"]).await;
    let page: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(page["items"], json!([]), "nothing was stored");
}

/// Both stages as HTTP services in the test process; they record their requests.
async fn stages() -> (String, Arc<Mutex<Vec<Value>>>) {
    let calls: Arc<Mutex<Vec<Value>>> = Arc::default();
    let answer = async |State(calls): State<Arc<Mutex<Vec<Value>>>>, Json(call): Json<Value>| {
        calls.lock().unwrap().push(call);
        Json(json!({ "criteria": [{ "kind": "inclusion", "text": "Adults" }] }))
    };
    let routes = Router::new()
        .route("/", post(answer))
        .with_state(Arc::clone(&calls));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, calls)
}

fn serve(db: &TestDb, dir: &std::path::Path, stages: &str) -> Command {
    let url = db.url();
    let mut command = postrider(&["serve", "--listen", "127.0.0.1:0", "--database-url", &url]);
    command.arg("--data-dir").arg(dir);
    for setting in [
        format!("protocols.stages.extraction.url={stages}"),
        format!("protocols.stages.grounding.url={stages}"),
        "protocols.lease.seconds=1".to_owned(),
    ] {
        command.args(["--set", &setting]);
    }
    command
}

#[tokio::test]
async fn protocol_completes_after_a_kill_in_any_step() {
    // Where it is killed, and how often each step is called then: as often as a careful person would.
    let points = [
        ("protocols.before_extraction", 1, 1),
        ("protocols.after_extraction", 2, 1),
        ("protocols.before_grounding", 1, 1),
        ("protocols.after_grounding", 1, 2),
        ("effect.before_commit", 2, 1),
        ("effect.after_commit", 1, 1),
    ];
    let db = TestDb::new().await;
    let dir = data_dir();
    for (point, extraction, grounding) in points {
        let (url, calls) = stages().await;
        let mut command = serve(&db, dir.path(), &url);
        command.env(crash::VARIABLE, format!("{point}=kill"));
        let mut program = Program::start(&command);
        let line = program.line_with("listens on ").await;
        let base = line.split_once("listens on ").unwrap().1.trim().to_owned();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let answer = reqwest::Client::new()
            .post(format!("{base}/protocols?title=T"))
            .header("content-type", "text/plain")
            .body("text")
            .send()
            .await
            .unwrap();
        let uploaded: Value = answer.json().await.unwrap();
        let id = uploaded["id"].as_str().unwrap().to_owned();
        let status = program.wait().await;
        assert!(!status.success(), "{point} kills");

        let serving = Serving::start(&serve(&db, dir.path(), &url)).await;
        let view = eventually("it waits for a review", async || {
            let answer = serving
                .get(&format!("/protocols/{id}"))
                .send()
                .await
                .unwrap();
            let view: Value = answer.json().await.unwrap();
            if view["status"] == "pending_review" {
                Ok(view)
            } else {
                Err(view)
            }
        })
        .await;
        assert_eq!(
            (&view["try"], &view["error_reason"]),
            (&json!(1), &Value::Null),
            "{point}"
        );
        let calls = calls.lock().unwrap().clone();
        let grounded = calls
            .iter()
            .filter(|call| call.get("criteria").is_some())
            .count();
        let counts = (calls.len() - grounded, grounded);
        assert_eq!(counts, (extraction, grounding), "{point}");
    }
}
