//! N1 and N2: sent when due, once each, in order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use postrider_web::http_client::webhook::{signature, signing_key};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use uuid::Uuid;

use crate::support::{
    DEADLINE, Fixture, behind_http, fast_retries, only_artifact, simulated_cases, within,
};

/// The requests of a receiver: headers and body.
type Received = Arc<Mutex<Vec<(HeaderMap, String)>>>;

#[derive(Clone)]
struct Receiver {
    got: Received,
    failures: Arc<Mutex<u32>>,
}

/// A receiver that fails this many times first.
async fn receiver(failures: u32) -> (String, Received) {
    let got = Received::default();
    let state = Receiver {
        got: Arc::clone(&got),
        failures: Arc::new(Mutex::new(failures)),
    };
    async fn receive(
        State(receiver): State<Receiver>,
        headers: HeaderMap,
        body: String,
    ) -> StatusCode {
        let mut left = receiver.failures.lock().unwrap();
        if *left > 0 {
            *left -= 1;
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        receiver.got.lock().unwrap().push((headers, body));
        StatusCode::OK
    }
    let routes = Router::new()
        .route("/hook", post(receive))
        .with_state(state);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, got)
}

async fn received(got: &Received, count: usize) -> Vec<Value> {
    within(DEADLINE, "the notifications arrive", async || {
        let bodies: Vec<Value> = got
            .lock()
            .unwrap()
            .iter()
            .map(|(_, body)| serde_json::from_str(body).unwrap())
            .collect();
        if bodies.len() >= count {
            Ok(bodies)
        } else {
            Err(bodies)
        }
    })
    .await
}

#[tokio::test]
async fn n1_and_n2_are_delivered_once_in_order_signed_and_with_correct_counts() {
    let (url, got) = receiver(2).await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let mut change = fast_retries();
    change["notify"] = json!({ "url": url, "secret": secret });
    let fixture = Fixture::with(change).await;
    let cases = simulated_cases(json!([
        { "file_name": "again", "first_calls": 1, "do": { "fail": { "status": 503 } } },
        { "file_name": "bad", "do": { "fail": { "status": 422 } } },
    ]));
    fixture.run(behind_http(&cases).await).await;
    let job = fixture
        .submit(&[&["again.pdf", "good.pdf"], &["bad.pdf"]])
        .await;
    let bodies = received(&got, 2).await;
    assert_eq!(
        bodies[0],
        json!({ "type": "evidence.n1", "file_job_id": job, "total": 3, "attached": 1, "failed": 2, "will_retry": 1,
                "errors": { "503": 1, "INVALID_FORMAT": 1 } })
    );
    let view = fixture.get(job).await;
    let bad = &view["rows"][1]["artifacts"][0];
    assert_eq!(
        bodies[1],
        json!({ "type": "evidence.n2", "file_job_id": job, "total": 3, "attached": 2, "permanent_failed": 1,
                "unsettled": 0, "recovered_by_retry": 1, "retry_needed": true, "forced": false,
                "errors": { "INVALID_FORMAT": 1 },
                "cannot_retry": [{ "artifact_id": bad["artifact_id"], "file_name": "bad.pdf",
                                   "case_id": view["rows"][1]["case_id"], "error_code": "INVALID_FORMAT",
                                   "error_category": "DATA" }] })
    );
    let key = signing_key(secret).unwrap();
    for (headers, body) in got.lock().unwrap().iter() {
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        let id: Uuid = text("webhook-id").parse().unwrap();
        let at: i64 = text("webhook-timestamp").parse().unwrap();
        assert_eq!(text("webhook-signature"), signature(&key, id, at, body));
    }
    within(DEADLINE, "the deliveries are recorded", async || {
        fixture
            .scalar::<i64>(
                "select count(*) from evidence.notification where delivered_at is not null",
            )
            .await
            == 2
    })
    .await;
    fixture.schedule().await;
    assert_eq!(got.lock().unwrap().len(), 2);
}

#[test]
fn signatures_match_standard_webhooks() {
    // The test vector of the Standard Webhooks libraries.
    let key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    let body = r#"{"test": 2432232314}"#;
    let one = signature(&key, id, 1_614_265_330, body);
    assert_eq!(one, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    assert_ne!(one, signature(&key, id, 1_614_265_331, body));
    assert_ne!(one, signature(b"another", id, 1_614_265_330, body));
    assert!(signing_key("whsec_not base64!").is_err());
}

#[tokio::test]
async fn n2_is_forced_once_at_its_deadline_and_unsettled_artifacts_fail() {
    let (url, got) = receiver(0).await;
    let fixture =
        Fixture::with(json!({ "n2": { "force_after": 0.3 }, "notify": { "url": url } })).await;
    let cases =
        simulated_cases(json!([{ "file_name": "bad", "do": { "fail": { "status": 503 } } }]));
    fixture.run(Arc::clone(&cases) as Arc<_>).await;
    let job = fixture.submit(&[&["bad.pdf", "good.pdf"]]).await;
    let bodies = received(&got, 2).await;
    assert_eq!(bodies[1]["forced"], true);
    assert_eq!(bodies[1]["unsettled"], 1);
    assert_eq!(bodies[1]["permanent_failed"], 0);
    assert_eq!(bodies[1]["attached"], 1);
    assert_eq!(bodies[1]["retry_needed"], true);
    let view = fixture.get(job).await;
    assert_eq!(
        view["rows"][0]["artifacts"][0]["retry_status"],
        "PERMANENT_FAILED"
    );
    fixture.schedule().await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    fixture.schedule().await;
    assert_eq!(got.lock().unwrap().len(), 2, "N2 is forced once");
}

#[tokio::test]
async fn result_after_a_forced_n2_changes_nothing() {
    let fixture = Fixture::with(fast_retries()).await;
    let cases = simulated_cases(json!([
        { "first_calls": 1, "do": { "fail": { "status": 503 } } },
        { "do": { "slow": { "for": 2 } } },
    ]));
    fixture.run(Arc::clone(&cases) as Arc<_>).await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    fixture
        .wait_until(job, "the retry is in progress", |view| {
            only_artifact(view)["retry_status"] == "RETRYING"
        })
        .await;
    fixture
        .execute("update evidence.file_job set n1_sent_at = now() - interval '25 h'")
        .await;
    let forced = fixture
        .wait_until(job, "N2 is forced", |view| view["status"] == "COMPLETED")
        .await;
    within(DEADLINE, "the late call has ended", async || {
        cases.calls().len() >= 2
    })
    .await;
    within(DEADLINE, "no task is left", async || {
        fixture
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    let after = fixture.get(job).await;
    assert_eq!(after["rows"], forced["rows"]);
}

#[tokio::test]
async fn file_of_a_deleted_case_is_not_retried() {
    let fixture = Fixture::with(fast_retries()).await;
    let cases = simulated_cases(json!([{ "first_calls": 1, "do": { "fail": { "status": 503 } } }]));
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(Arc::clone(&cases) as Arc<_>);
    fixture.notify();
    let job = fixture.submit(&[&["a.pdf"], &["b.pdf"]]).await;
    let view = fixture.wait_until_tried(job).await;
    let case = view["rows"][0]["case_id"].as_str().unwrap();
    cases.delete_case(case.parse().unwrap());
    fixture.start_scheduler();
    let view = fixture
        .wait_until(job, "it is closed", |view| view["status"] == "COMPLETED")
        .await;
    let n2 = &view["notifications"][1]["body"];
    assert_eq!(n2["cannot_retry"].as_array().unwrap().len(), 1);
    assert_eq!(n2["cannot_retry"][0]["error_code"], "CASE_NOT_FOUND");
    assert_eq!(n2["cannot_retry"][0]["case_id"], case);
    assert_eq!(
        (&n2["attached"], &n2["recovered_by_retry"]),
        (&json!(1), &json!(1))
    );
}

/// A minimal mail server; returns the mails it received.
async fn mail_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("smtp://{}", listener.local_addr().unwrap());
    let mails: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&mails);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let (read, mut write) = socket.into_split();
                let mut lines = BufReader::new(read).lines();
                write.write_all(b"220 test\r\n").await.unwrap();
                while let Ok(Some(line)) = lines.next_line().await {
                    let answer: &[u8] = match line.get(..4).unwrap_or_default() {
                        "EHLO" | "HELO" => b"250 test\r\n",
                        "DATA" => {
                            write.write_all(b"354 go on\r\n").await.unwrap();
                            let mut mail = String::new();
                            while let Ok(Some(line)) = lines.next_line().await {
                                if line == "." {
                                    break;
                                }
                                mail.push_str(&line);
                                mail.push('\n');
                            }
                            kept.lock().unwrap().push(mail);
                            b"250 taken\r\n"
                        }
                        "QUIT" => b"221 bye\r\n",
                        _ => b"250 ok\r\n",
                    };
                    if write.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, mails)
}

#[tokio::test]
async fn notifications_are_sent_by_mail() {
    let (url, mails) = mail_server().await;
    let fixture = Fixture::with(json!({ "notify": {
        "smtp_url": url, "smtp_from": "Postrider <evidence@example.com>", "smtp_to": "disputes@example.com" } }))
    .await;
    fixture
        .run(simulated_cases(
            json!([{ "file_name": "bad", "do": { "fail": { "status": 422 } } }]),
        ))
        .await;
    fixture.submit(&[&["bad.pdf", "good.pdf"]]).await;
    let mails = within(DEADLINE, "both mails arrive", async || {
        let mails = mails.lock().unwrap().clone();
        if mails.len() >= 2 {
            Ok(mails)
        } else {
            Err(mails)
        }
    })
    .await;
    // A long line is folded.
    let unfolded = mails[0].replace("\n ", " ");
    assert!(unfolded.contains("first attempts are done"), "{unfolded}");
    assert!(mails[1].contains("Cannot retry: bad.pdf"), "{}", mails[1]);
    assert!(mails[1].contains("To: disputes@example.com"));
}
