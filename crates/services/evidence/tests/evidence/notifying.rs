//! N1 and N2: when, once each, in order, and delivered.

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

use crate::support::{House, LONG, behind_http, only, paper, quick_retries, within};

/// What a receiver got: its headers and body.
type Got = Arc<Mutex<Vec<(HeaderMap, String)>>>;

#[derive(Clone)]
struct Receiver {
    got: Got,
    refusals: Arc<Mutex<u32>>,
}

/// A receiver that refuses so many times first.
async fn receiver(refusals: u32) -> (String, Got) {
    let got = Got::default();
    let state = Receiver {
        got: Arc::clone(&got),
        refusals: Arc::new(Mutex::new(refusals)),
    };
    async fn take(
        State(receiver): State<Receiver>,
        headers: HeaderMap,
        body: String,
    ) -> StatusCode {
        let mut left = receiver.refusals.lock().unwrap();
        if *left > 0 {
            *left -= 1;
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        receiver.got.lock().unwrap().push((headers, body));
        StatusCode::OK
    }
    let routes = Router::new().route("/hook", post(take)).with_state(state);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, got)
}

async fn arrived(got: &Got, many: usize) -> Vec<Value> {
    within(LONG, "the notifications arrive", async || {
        let bodies: Vec<Value> = got
            .lock()
            .unwrap()
            .iter()
            .map(|(_, body)| serde_json::from_str(body).unwrap())
            .collect();
        if bodies.len() >= many {
            Ok(bodies)
        } else {
            Err(bodies)
        }
    })
    .await
}

#[tokio::test]
async fn n1_and_n2_arrive_signed_once_each_in_order_and_with_right_numbers() {
    let (url, got) = receiver(2).await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let mut change = quick_retries();
    change["notify"] = json!({ "url": url, "secret": secret });
    let house = House::with(change).await;
    let cases = paper(json!([
        { "file_name": "again", "first_calls": 1, "do": { "fail": { "status": 503 } } },
        { "file_name": "bad", "do": { "fail": { "status": 422 } } },
    ]));
    house.run(behind_http(&cases).await).await;
    let job = house
        .submit(&[&["again.pdf", "good.pdf"], &["bad.pdf"]])
        .await;
    let bodies = arrived(&got, 2).await;
    assert_eq!(
        bodies[0],
        json!({ "type": "evidence.n1", "file_job_id": job, "total": 3, "attached": 1, "failed": 2, "will_retry": 1,
                "errors": { "503": 1, "INVALID_FORMAT": 1 } })
    );
    let view = house.get(job).await;
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
    within(LONG, "the deliveries are recorded", async || {
        house
            .scalar::<i64>(
                "select count(*) from evidence.notification where delivered_at is not null",
            )
            .await
            == 2
    })
    .await;
    house.schedule().await;
    assert_eq!(got.lock().unwrap().len(), 2);
}

#[test]
fn signatures_are_those_of_the_standard() {
    // The vector that the libraries of Standard Webhooks are tested with.
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
async fn n2_is_forced_once_when_its_time_is_up_and_what_remains_is_given_up() {
    let (url, got) = receiver(0).await;
    let house =
        House::with(json!({ "n2": { "force_after": 0.3 }, "notify": { "url": url } })).await;
    let cases = paper(json!([{ "file_name": "bad", "do": { "fail": { "status": 503 } } }]));
    house.run(Arc::clone(&cases) as Arc<_>).await;
    let job = house.submit(&[&["bad.pdf", "good.pdf"]]).await;
    let bodies = arrived(&got, 2).await;
    assert_eq!(bodies[1]["forced"], true);
    assert_eq!(bodies[1]["unsettled"], 1);
    assert_eq!(bodies[1]["permanent_failed"], 0);
    assert_eq!(bodies[1]["attached"], 1);
    assert_eq!(bodies[1]["retry_needed"], true);
    let view = house.get(job).await;
    assert_eq!(
        view["rows"][0]["artifacts"][0]["retry_status"],
        "PERMANENT_FAILED"
    );
    house.schedule().await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    house.schedule().await;
    assert_eq!(got.lock().unwrap().len(), 2, "the force fires once");
}

#[tokio::test]
async fn a_result_that_comes_in_after_the_force_changes_nothing() {
    let house = House::with(quick_retries()).await;
    let cases = paper(json!([
        { "first_calls": 1, "do": { "fail": { "status": 503 } } },
        { "do": { "slow": { "for": 2 } } },
    ]));
    house.run(Arc::clone(&cases) as Arc<_>).await;
    let job = house.submit(&[&["a.pdf"]]).await;
    house
        .until(job, "the retry is under way", |view| {
            only(view)["retry_status"] == "RETRYING"
        })
        .await;
    house
        .execute("update evidence.file_job set n1_sent_at = now() - interval '25 h'")
        .await;
    let forced = house
        .until(job, "N2 is forced", |view| view["status"] == "COMPLETED")
        .await;
    within(LONG, "the late call has ended", async || {
        cases.calls().len() >= 2
    })
    .await;
    within(LONG, "no task is left", async || {
        house
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    let after = house.get(job).await;
    assert_eq!(after["rows"], forced["rows"]);
}

#[tokio::test]
async fn a_case_that_is_deleted_in_the_middle_cannot_be_retried() {
    let house = House::with(quick_retries()).await;
    let cases = paper(json!([{ "first_calls": 1, "do": { "fail": { "status": 503 } } }]));
    house.publish().await;
    house.arm();
    house.attach(Arc::clone(&cases) as Arc<_>);
    house.notify();
    let job = house.submit(&[&["a.pdf"], &["b.pdf"]]).await;
    let view = house.tried(job).await;
    let case = view["rows"][0]["case_id"].as_str().unwrap();
    cases.delete_case(case.parse().unwrap());
    house.keep_scheduling();
    let view = house
        .until(job, "it is closed", |view| view["status"] == "COMPLETED")
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

/// As much of a mail server as a client needs; gives what was sent.
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
async fn notifications_go_out_as_mail_too() {
    let (url, mails) = mail_server().await;
    let house = House::with(json!({ "notify": {
        "smtp_url": url, "smtp_from": "Postrider <evidence@example.com>", "smtp_to": "disputes@example.com" } }))
    .await;
    house
        .run(paper(
            json!([{ "file_name": "bad", "do": { "fail": { "status": 422 } } }]),
        ))
        .await;
    house.submit(&[&["bad.pdf", "good.pdf"]]).await;
    let mails = within(LONG, "both mails arrive", async || {
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
