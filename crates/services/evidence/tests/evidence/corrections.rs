//! The corrections of the design.

use std::sync::Arc;

use postrider::transport::{Message, MessageId};
use postrider_evidence::task_consumer;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    DEADLINE, Fixture, behind_http, fast_retries, only_artifact, settings, simulated_cases, within,
};

fn closed(view: &Value) -> bool {
    view["status"] == "COMPLETED"
}

fn n2(view: &Value) -> &Value {
    &view["notifications"][1]["body"]
}

/// The payloads of this topic in the outbox.
async fn outbox_payloads(fixture: &Fixture, topic: &str) -> Vec<Value> {
    sqlx::query_scalar("select payload from postrider.outbox where topic = $1 order by id")
        .bind(topic)
        .fetch_all(&fixture.pool)
        .await
        .unwrap()
}

fn message(topic: &str, payload: &Value) -> Message {
    Message::new(MessageId::new(Uuid::now_v7()), topic, payload.to_string())
}

const REQUESTS: &str = "evidence.attach.requests";
const RETRIES: &str = "evidence.failed.requests";

#[tokio::test]
async fn correction_1_one_function_derives_category_and_retryability() {
    let fixture = Fixture::new().await;
    let generated: i64 = fixture
        .scalar(
            "select count(*) from information_schema.columns
             where table_schema = 'evidence' and table_name = 'file_job_artifact' and is_generated = 'ALWAYS'
               and column_name in ('error_category', 'is_retryable') and generation_expression like '%error_category(%'",
        )
        .await;
    assert_eq!(generated, 2);
}

#[tokio::test]
async fn correction_2_unrecorded_attachment_is_repeated_under_the_same_id_and_counts_once() {
    let fixture = Fixture::with(fast_retries()).await;
    // It attaches the file and doesn't respond.
    let cases = simulated_cases(json!([{ "first_calls": 1, "do": "hang_up" }]));
    fixture.run(behind_http(&cases).await).await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    let view = fixture.wait_until(job, "it is closed", closed).await;
    assert_eq!(only_artifact(&view)["attachment_status"], "ATTACHED");
    let statuses: Vec<u16> = cases.calls().iter().map(|call| call.status).collect();
    assert_eq!(statuses, [0, 409]);
    assert_eq!(cases.attached().len(), 1);
}

#[tokio::test]
async fn correction_2_api_without_idempotent_put_is_queried_before_a_repeat() {
    let mut change = fast_retries();
    change["case_api"] = json!({ "look_up": true });
    let fixture = Fixture::with(change).await;
    let cases = simulated_cases(json!([{ "first_calls": 1, "do": "hang_up" }]));
    fixture.run(behind_http(&cases).await).await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    let view = fixture.wait_until(job, "it is closed", closed).await;
    assert_eq!(only_artifact(&view)["attachment_status"], "ATTACHED");
    assert_eq!(only_artifact(&view)["attempt_count"], 2);
    assert_eq!(
        cases.calls().len(),
        1,
        "a second PUT would attach the file twice"
    );
}

#[tokio::test]
async fn correction_3_artifact_without_error_code_has_no_category_and_is_not_retryable() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    let untried = only_artifact(&fixture.get(job).await).clone();
    assert_eq!(
        (&untried["error_category"], &untried["is_retryable"]),
        (&Value::Null, &json!(false))
    );
    fixture.run(simulated_cases(json!([]))).await;
    let view = fixture
        .wait_until(job, "N2 is sent although an artifact has no code", closed)
        .await;
    assert_eq!(only_artifact(&view)["error_category"], Value::Null);
    assert_eq!(only_artifact(&view)["is_retryable"], false);
}

#[tokio::test]
async fn correction_4_missing_objects_and_rejected_credentials_are_not_retried() {
    let fixture = Fixture::with(fast_retries()).await;
    let cases = simulated_cases(json!([
        { "file_name": "auth", "do": { "fail": { "status": 401 } } },
        { "file_name": "case", "do": { "fail": { "status": 404 } } },
    ]));
    let job = fixture
        .submit(&[&["auth.pdf", "case.pdf", "gone.pdf"]])
        .await;
    let gone = fixture
        .stored_files()
        .into_iter()
        .find(|path| path.to_string_lossy().contains("gone"));
    std::fs::remove_file(gone.unwrap()).unwrap();
    fixture.run(Arc::clone(&cases) as Arc<_>).await;
    let view = fixture.wait_until(job, "it is closed", closed).await;
    assert_eq!(cases.calls().len(), 2);
    assert_eq!(n2(&view)["permanent_failed"], 3);
    assert_eq!(n2(&view)["retry_needed"], false);
    let rounds: i32 = fixture
        .scalar("select max(retry_round) from evidence.file_job_row")
        .await;
    assert_eq!(rounds, 0);
}

#[tokio::test]
async fn correction_5_first_failure_leaves_two_retries_and_success_is_counted() {
    let fixture = Fixture::with(fast_retries()).await;
    let cases = simulated_cases(json!([
        { "file_name": "third", "first_calls": 2, "do": { "fail": { "status": 503 } } },
        { "file_name": "never", "do": { "fail": { "status": 500 } } },
    ]));
    fixture.run(behind_http(&cases).await).await;
    let job = fixture
        .submit(&[&["third.pdf", "never.pdf", "first.pdf"]])
        .await;
    let view = fixture.wait_until(job, "it is closed", closed).await;
    let counts: Vec<_> = view["rows"][0]["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| {
            (
                a["attempt_count"].as_i64().unwrap(),
                a["retry_count"].as_i64().unwrap(),
                a["retry_status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        counts,
        [
            (3, 2, "RETRY_SUCCESS"),
            (3, 2, "PERMANENT_FAILED"),
            (1, 0, "PENDING")
        ]
    );
    assert_eq!(n2(&view)["recovered_by_retry"], 1);
    assert_eq!(n2(&view)["permanent_failed"], 1);
    let calls = |name: &str| {
        cases
            .calls()
            .iter()
            .filter(|call| call.file_name == name)
            .count()
    };
    assert_eq!(
        (calls("third.pdf"), calls("never.pdf"), calls("first.pdf")),
        (3, 3, 1)
    );
}

#[tokio::test]
async fn correction_6_no_transaction_or_lock_is_held_during_a_case_api_call() {
    let fixture = Fixture::new().await;
    let cases = simulated_cases(json!([{ "do": { "slow": { "for": 1.5 } } }]));
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(Arc::clone(&cases) as Arc<_>);
    let job = fixture.submit(&[&["a.pdf"]]).await;
    within(DEADLINE, "it is held", async || {
        fixture
            .scalar::<bool>(
                "select exists (select from evidence.file_job_artifact where held_by is not null)",
            )
            .await
    })
    .await;
    // The call takes much longer than this query.
    fixture
        .scalar::<i32>("with l as (select id from evidence.file_job_artifact for update nowait) select 1 from l")
        .await;
    let open: i64 = fixture
        .scalar(
            "select count(*) from pg_stat_activity
             where datname = current_database() and state = 'idle in transaction' and xact_start < now() - interval '300 ms'",
        )
        .await;
    assert_eq!(open, 0);
    fixture.wait_until_tried(job).await;
}

#[tokio::test]
async fn correction_7_row_is_pending_until_every_artifact_was_tried() {
    let fixture = Fixture::new().await;
    let cases = simulated_cases(json!([{ "file_name": "last", "do": { "slow": { "for": 2 } } }]));
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(Arc::clone(&cases) as Arc<_>);
    // More than a worker holds at a time.
    let mut files: Vec<String> = (0..32).map(|n| format!("f{n:02}.pdf")).collect();
    files.push("last.pdf".to_owned());
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let job = fixture.submit(&[&files]).await;
    let view = fixture
        .wait_until(job, "some are recorded", |view| {
            view["attached"].as_i64() >= Some(32)
        })
        .await;
    assert_eq!(view["rows"][0]["evidence_status"], "PENDING");
    assert_eq!(view["rows"][0]["evidence_attached_count"], 32);
    let view = fixture.wait_until_tried(job).await;
    assert_eq!(view["rows"][0]["evidence_status"], "COMPLETED");
}

#[tokio::test]
async fn correction_8_n2_follows_n1_immediately_when_nothing_needs_a_retry() {
    let fixture = Fixture::new().await;
    fixture.run(simulated_cases(json!([]))).await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    let view = fixture.wait_until(job, "it is closed", closed).await;
    let kinds: Vec<&str> = view["notifications"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["evidence.n1", "evidence.n2"]);
    assert_eq!(n2(&view)["retry_needed"], false);
    assert_eq!(
        (&n2(&view)["attached"], &n2(&view)["total"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test]
async fn correction_8_n2_can_be_skipped_when_nothing_needs_a_retry() {
    let fixture = Fixture::with(json!({ "n2": { "when_no_retry": "skip" } })).await;
    fixture.run(simulated_cases(json!([]))).await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    let view = fixture.wait_until(job, "it is closed", closed).await;
    assert_eq!(view["notifications"].as_array().unwrap().len(), 1);
    assert_eq!(view["n2_sent_at"], Value::Null);
}

#[tokio::test]
async fn correction_9_duplicate_events_at_two_workers_attach_once() {
    let fixture = Fixture::with(fast_retries()).await;
    let cases = simulated_cases(json!([
        { "first_calls": 1, "do": { "fail": { "status": 503 } } },
        { "do": { "slow": { "for": 0.1 } } },
    ]));
    fixture.start_worker(Arc::clone(&cases) as Arc<_>);
    fixture.start_worker(Arc::clone(&cases) as Arc<_>);
    let job = fixture.submit(&[&["a.pdf"], &["b.pdf"]]).await;
    let events = outbox_payloads(&fixture, REQUESTS).await;
    let thrice: Vec<Message> = (0..3)
        .flat_map(|_| events.iter().map(|event| message(REQUESTS, event)))
        .collect();
    task_consumer::create_tasks(&mut fixture.connect().await, &thrice)
        .await
        .unwrap();
    fixture.wait_until_tried(job).await;
    within(DEADLINE, "no task is left", async || {
        fixture
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    assert_eq!(cases.calls().len(), 2, "one first attempt each");
    fixture.make_due().await;
    fixture.schedule().await;
    let retries = outbox_payloads(&fixture, RETRIES).await;
    assert_eq!(retries.len(), 2);
    let thrice: Vec<Message> = (0..3)
        .flat_map(|_| retries.iter().map(|event| message(RETRIES, event)))
        .collect();
    task_consumer::create_tasks(&mut fixture.connect().await, &thrice)
        .await
        .unwrap();
    fixture
        .wait_until(job, "both are attached", |view| view["attached"] == 2)
        .await;
    within(DEADLINE, "no task is left", async || {
        fixture
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    assert_eq!(cases.calls().len(), 4, "one retry each");
    assert_eq!(cases.attached().len(), 2);
}

#[tokio::test]
async fn correction_10_job_never_changes_after_n2() {
    let mut change = fast_retries();
    change["n2"] = json!({ "force_after": 0.2, "mark_remaining_permanent": false });
    change["retry"]["backoff"] = json!({ "initial_delay": "1h", "max_delay": "1h" });
    let fixture = Fixture::with(change).await;
    let cases = simulated_cases(json!([{ "do": { "fail": { "status": 503 } } }]));
    fixture.run(Arc::clone(&cases) as Arc<_>).await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    let before = fixture.wait_until(job, "N2 is forced", closed).await;
    assert_eq!(only_artifact(&before)["is_retryable"], true, "unchanged");
    cases.script().replace(Vec::new());
    // It is due, and a late event arrives.
    fixture.make_due().await;
    let row = before["rows"][0]["file_job_row_id"].clone();
    let late = json!({
        "event_id": Uuid::now_v7(), "event_type": "EVIDENCE_ATTACH_RETRY", "occurred_at": "2025-10-08T10:33:00Z",
        "file_job_id": job, "file_job_row_id": row, "case_id": before["rows"][0]["case_id"], "artifacts": [],
        "schema_version": 1
    });
    task_consumer::create_tasks(&mut fixture.connect().await, &[message(RETRIES, &late)])
        .await
        .unwrap();
    fixture.schedule().await;
    within(DEADLINE, "no task is left", async || {
        fixture
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    let after = fixture.get(job).await;
    assert_eq!(only_artifact(&after)["attempt_count"], 1);
    assert_eq!(after["n2_sent_at"], before["n2_sent_at"]);
    assert_eq!(cases.calls().len(), 1);
    assert_eq!(outbox_payloads(&fixture, RETRIES).await.len(), 0);
}

#[tokio::test]
async fn correction_11_row_is_scheduled_only_when_due_and_only_once() {
    let fixture = Fixture::new().await;
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(simulated_cases(
        json!([{ "do": { "fail": { "status": 503 } } }]),
    ));
    let job = fixture.submit(&[&["a.pdf"]]).await;
    fixture.wait_until_tried(job).await;
    fixture.schedule().await;
    let rounds = async || -> i32 {
        fixture
            .scalar("select retry_round from evidence.file_job_row")
            .await
    };
    assert_eq!(rounds().await, 0, "not due for five minutes");
    fixture.make_due().await;
    // Concurrent ticks.
    fixture
        .execute("update evidence.file_job_artifact set held_by = null")
        .await;
    let status = async || -> String {
        fixture
            .scalar("select retry_status::text from evidence.file_job_artifact")
            .await
    };
    let (first, second) = (fixture.scheduler(), fixture.scheduler());
    let stop = tokio_util::sync::CancellationToken::new();
    let (one, two) = tokio::join!(first.tick(&stop), second.tick(&stop));
    one.unwrap();
    two.unwrap();
    assert_eq!(rounds().await, 1, "concurrent schedulers schedule it once");
    assert_ne!(status().await, "PENDING");
    fixture.schedule().await;
    assert_eq!(rounds().await, 1);
}

#[tokio::test]
async fn correction_12_retry_skips_permanent_failures_and_artifacts_that_are_not_due() {
    let fixture = Fixture::new().await;
    let cases = simulated_cases(json!([
        { "file_name": "perm", "do": { "fail": { "status": 422 } } },
        { "do": { "fail": { "status": 503 } } },
    ]));
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(Arc::clone(&cases) as Arc<_>);
    let job = fixture
        .submit(&[&["due.pdf", "perm.pdf", "later.pdf"]])
        .await;
    fixture.wait_until_tried(job).await;
    fixture
        .execute(
            "update evidence.file_job_artifact set next_retry_at = now() where file_name = 'due.pdf'",
        )
        .await;
    fixture.schedule().await;
    let view = fixture
        .wait_until(job, "it was retried", |view| {
            view["rows"][0]["artifacts"][0]["attempt_count"] == 2
        })
        .await;
    let attempts: Vec<_> = view["rows"][0]["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["attempt_count"].as_i64().unwrap())
        .collect();
    assert_eq!(attempts, [2, 1, 1]);
    // A duplicate first event acts on nothing that was tried.
    let row = view["rows"][0]["file_job_row_id"].clone();
    let again = json!({
        "event_id": Uuid::now_v7(), "event_type": "EVIDENCE_ATTACH", "occurred_at": "2025-10-08T10:33:00Z",
        "file_job_id": job, "file_job_row_id": row, "case_id": view["rows"][0]["case_id"], "artifacts": [],
        "schema_version": 1
    });
    task_consumer::create_tasks(&mut fixture.connect().await, &[message(REQUESTS, &again)])
        .await
        .unwrap();
    within(DEADLINE, "no task is left", async || {
        fixture
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    assert_eq!(cases.calls().len(), 4);
}

#[tokio::test]
async fn correction_13_dead_task_fails_its_untried_artifacts_so_that_n1_is_sent() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(&[&["a.pdf", "b.pdf"]]).await;
    let events = outbox_payloads(&fixture, REQUESTS).await;
    task_consumer::create_tasks(
        &mut fixture.connect().await,
        &[message(REQUESTS, &events[0])],
    )
    .await
    .unwrap();
    // Ten workers have died over it.
    fixture
        .execute(
            "update evidence.attach_task set state = 'leased', lease_until = now() - interval '1 s', fence = 1,
                    lease_owner = 'gone', losses = 10",
        )
        .await;
    fixture.publish().await;
    fixture.notify();
    fixture.start_worker(simulated_cases(json!([])));
    let view = fixture
        .wait_until(job, "N1 is sent", |view| view["n1_sent_at"].is_string())
        .await;
    assert_eq!(view["errors"], json!({ "SYSTEM_ERROR": 2 }));
    let n1 = &view["notifications"][0]["body"];
    assert_eq!((&n1["failed"], &n1["will_retry"]), (&json!(2), &json!(2)));
    let dead: i64 = fixture
        .scalar("select count(*) from evidence.attach_task where state = 'dead'")
        .await;
    assert_eq!(dead, 1, "the task is a dead letter");
}

#[tokio::test]
async fn correction_13_dead_event_fails_its_untried_artifacts_too() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    fixture
        .execute(
            "update postrider.outbox set state = 'dead', finished_at = now(), attempts = 1, error_code = 'TOO_LARGE', cause = 'TOO_LARGE'",
        )
        .await;
    fixture.schedule().await;
    let view = fixture.get(job).await;
    assert_eq!(
        only_artifact(&view)["attachment_error_code"],
        "SYSTEM_ERROR"
    );
    assert!(view["n1_sent_at"].is_string(), "{view}");
}

#[tokio::test]
async fn correction_14_artifact_keeps_the_retry_limit_of_its_ingestion() {
    let fixture = Fixture::with(json!({ "retry": { "max_attempts": 1 } })).await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    let cases = simulated_cases(json!([{ "do": { "fail": { "status": 503 } } }]));
    fixture.publish().await;
    fixture.consume_events();
    // The configuration has changed to three attempts.
    fixture.start_worker_with(&settings(fast_retries()), Arc::clone(&cases) as Arc<_>);
    fixture.notify();
    let view = fixture.wait_until(job, "it is closed", closed).await;
    assert_eq!(only_artifact(&view)["is_retryable"], false);
    assert_eq!(only_artifact(&view)["retry_status"], "PERMANENT_FAILED");
    let kept: i32 = fixture
        .scalar("select max_retries from evidence.file_job_artifact")
        .await;
    assert_eq!(kept, 0);
    assert_eq!(cases.calls().len(), 1);
}
