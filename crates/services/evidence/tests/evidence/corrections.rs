//! Each correction of the design, by name: what the original text would have done wrong.

use std::sync::Arc;

use postrider::transport::{Message, MessageId};
use postrider_evidence::task_consumer;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{House, LONG, behind_http, only, paper, quick_retries, settings, within};

fn closed(view: &Value) -> bool {
    view["status"] == "COMPLETED"
}

fn n2(view: &Value) -> &Value {
    &view["notifications"][1]["body"]
}

/// The messages that wait in the outbox on this topic.
async fn waiting(house: &House, topic: &str) -> Vec<Value> {
    sqlx::query_scalar("select payload from postrider.outbox where topic = $1 order by id")
        .bind(topic)
        .fetch_all(&house.pool)
        .await
        .unwrap()
}

fn message(topic: &str, payload: &Value) -> Message {
    Message::new(MessageId::new(Uuid::now_v7()), topic, payload.to_string())
}

const REQUESTS: &str = "evidence.attach.requests";
const RETRIES: &str = "evidence.failed.requests";

#[tokio::test]
async fn correction_1_the_schema_runs_and_one_function_gives_the_category_to_both_columns() {
    let house = House::new().await;
    let generated: i64 = house
        .scalar(
            "select count(*) from information_schema.columns
             where table_schema = 'evidence' and table_name = 'file_job_artifact' and is_generated = 'ALWAYS'
               and column_name in ('error_category', 'is_retryable') and generation_expression like '%error_category(%'",
        )
        .await;
    assert_eq!(generated, 2);
}

#[tokio::test]
async fn correction_2_an_attach_that_was_never_recorded_is_repeated_under_its_id_and_counts_once() {
    let house = House::with(quick_retries()).await;
    // It attaches, and the answer never comes.
    let cases = paper(json!([{ "first_calls": 1, "do": "hang_up" }]));
    house.run(behind_http(&cases).await).await;
    let job = house.submit(&[&["a.pdf"]]).await;
    let view = house.until(job, "it is closed", closed).await;
    assert_eq!(only(&view)["attachment_status"], "ATTACHED");
    let statuses: Vec<u16> = cases.calls().iter().map(|call| call.status).collect();
    assert_eq!(statuses, [0, 409]);
    assert_eq!(cases.attached().len(), 1);
}

#[tokio::test]
async fn correction_2_an_api_without_idempotent_put_is_asked_before_a_repeat() {
    let mut change = quick_retries();
    change["case_api"] = json!({ "look_up": true });
    let house = House::with(change).await;
    let cases = paper(json!([{ "first_calls": 1, "do": "hang_up" }]));
    house.run(behind_http(&cases).await).await;
    let job = house.submit(&[&["a.pdf"]]).await;
    let view = house.until(job, "it is closed", closed).await;
    assert_eq!(only(&view)["attachment_status"], "ATTACHED");
    assert_eq!(only(&view)["attempt_count"], 2);
    assert_eq!(
        cases.calls().len(),
        1,
        "a second PUT would be a second attachment there"
    );
}

#[tokio::test]
async fn correction_3_what_has_no_error_code_has_no_category_and_is_not_retryable() {
    let house = House::new().await;
    let job = house.submit(&[&["a.pdf"]]).await;
    let untried = only(&house.get(job).await).clone();
    assert_eq!(
        (&untried["error_category"], &untried["is_retryable"]),
        (&Value::Null, &json!(false))
    );
    house.run(paper(json!([]))).await;
    let view = house
        .until(job, "N2 is out although an artifact has no code", closed)
        .await;
    assert_eq!(only(&view)["error_category"], Value::Null);
    assert_eq!(only(&view)["is_retryable"], false);
}

#[tokio::test]
async fn correction_4_missing_objects_and_refused_callers_are_not_retried() {
    let house = House::with(quick_retries()).await;
    let cases = paper(json!([
        { "file_name": "auth", "do": { "fail": { "status": 401 } } },
        { "file_name": "case", "do": { "fail": { "status": 404 } } },
    ]));
    let job = house.submit(&[&["auth.pdf", "case.pdf", "gone.pdf"]]).await;
    let gone = house
        .stored()
        .into_iter()
        .find(|path| path.to_string_lossy().contains("gone"));
    std::fs::remove_file(gone.unwrap()).unwrap();
    house.run(Arc::clone(&cases) as Arc<_>).await;
    let view = house.until(job, "it is closed", closed).await;
    assert_eq!(cases.calls().len(), 2);
    assert_eq!(n2(&view)["permanent_failed"], 3);
    assert_eq!(n2(&view)["retry_needed"], false);
    let put: i32 = house
        .scalar("select max(retry_round) from evidence.file_job_row")
        .await;
    assert_eq!(put, 0);
}

#[tokio::test]
async fn correction_5_a_first_failure_leaves_two_retries_and_success_is_counted() {
    let house = House::with(quick_retries()).await;
    let cases = paper(json!([
        { "file_name": "third", "first_calls": 2, "do": { "fail": { "status": 503 } } },
        { "file_name": "never", "do": { "fail": { "status": 500 } } },
    ]));
    house.run(behind_http(&cases).await).await;
    let job = house
        .submit(&[&["third.pdf", "never.pdf", "first.pdf"]])
        .await;
    let view = house.until(job, "it is closed", closed).await;
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
async fn correction_6_no_transaction_is_open_and_no_row_locked_while_the_case_api_is_called() {
    let house = House::new().await;
    let cases = paper(json!([{ "do": { "slow": { "for": 1.5 } } }]));
    house.publish().await;
    house.arm();
    house.attach(Arc::clone(&cases) as Arc<_>);
    let job = house.submit(&[&["a.pdf"]]).await;
    within(LONG, "it is held", async || {
        house
            .scalar::<bool>(
                "select exists (select from evidence.file_job_artifact where held_by is not null)",
            )
            .await
    })
    .await;
    // The call takes longer than this look by far.
    house
        .scalar::<i32>("with l as (select id from evidence.file_job_artifact for update nowait) select 1 from l")
        .await;
    let open: i64 = house
        .scalar(
            "select count(*) from pg_stat_activity
             where datname = current_database() and state = 'idle in transaction' and xact_start < now() - interval '300 ms'",
        )
        .await;
    assert_eq!(open, 0);
    house.tried(job).await;
}

#[tokio::test]
async fn correction_7_a_row_is_pending_until_every_artifact_was_tried() {
    let house = House::new().await;
    let cases = paper(json!([{ "file_name": "last", "do": { "slow": { "for": 2 } } }]));
    house.publish().await;
    house.arm();
    house.attach(Arc::clone(&cases) as Arc<_>);
    // More than a worker takes at once.
    let mut files: Vec<String> = (0..32).map(|n| format!("f{n:02}.pdf")).collect();
    files.push("last.pdf".to_owned());
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let job = house.submit(&[&files]).await;
    let view = house
        .until(job, "some are recorded", |view| {
            view["attached"].as_i64() >= Some(32)
        })
        .await;
    assert_eq!(view["rows"][0]["evidence_status"], "PENDING");
    assert_eq!(view["rows"][0]["evidence_attached_count"], 32);
    let view = house.tried(job).await;
    assert_eq!(view["rows"][0]["evidence_status"], "COMPLETED");
}

#[tokio::test]
async fn correction_8_n2_with_nothing_to_retry_follows_n1_at_once_and_says_so() {
    let house = House::new().await;
    house.run(paper(json!([]))).await;
    let job = house.submit(&[&["a.pdf"]]).await;
    let view = house.until(job, "it is closed", closed).await;
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
async fn correction_8_n2_can_be_left_out_when_nothing_was_to_retry() {
    let house = House::with(json!({ "n2": { "when_no_retry": "skip" } })).await;
    house.run(paper(json!([]))).await;
    let job = house.submit(&[&["a.pdf"]]).await;
    let view = house.until(job, "it is closed", closed).await;
    assert_eq!(view["notifications"].as_array().unwrap().len(), 1);
    assert_eq!(view["n2_sent_at"], Value::Null);
}

#[tokio::test]
async fn correction_9_an_event_that_comes_three_times_to_two_workers_attaches_once() {
    let house = House::with(quick_retries()).await;
    let cases = paper(json!([
        { "first_calls": 1, "do": { "fail": { "status": 503 } } },
        { "do": { "slow": { "for": 0.1 } } },
    ]));
    house.attach(Arc::clone(&cases) as Arc<_>);
    house.attach(Arc::clone(&cases) as Arc<_>);
    let job = house.submit(&[&["a.pdf"], &["b.pdf"]]).await;
    let events = waiting(&house, REQUESTS).await;
    let thrice: Vec<Message> = (0..3)
        .flat_map(|_| events.iter().map(|event| message(REQUESTS, event)))
        .collect();
    task_consumer::create_tasks(&mut house.connect().await, &thrice)
        .await
        .unwrap();
    house.tried(job).await;
    within(LONG, "no task is left", async || {
        house
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    assert_eq!(cases.calls().len(), 2, "one first attempt each");
    house.bring_due().await;
    house.schedule().await;
    let retries = waiting(&house, RETRIES).await;
    assert_eq!(retries.len(), 2);
    let thrice: Vec<Message> = (0..3)
        .flat_map(|_| retries.iter().map(|event| message(RETRIES, event)))
        .collect();
    task_consumer::create_tasks(&mut house.connect().await, &thrice)
        .await
        .unwrap();
    house
        .until(job, "both are attached", |view| view["attached"] == 2)
        .await;
    within(LONG, "no task is left", async || {
        house
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    assert_eq!(cases.calls().len(), 4, "one retry each");
    assert_eq!(cases.attached().len(), 2);
}

#[tokio::test]
async fn correction_10_a_job_whose_n2_is_out_is_never_changed() {
    let mut change = quick_retries();
    change["n2"] = json!({ "force_after": 0.2, "mark_remaining_permanent": false });
    change["retry"]["backoff"] = json!({ "initial_delay": "1h", "max_delay": "1h" });
    let house = House::with(change).await;
    let cases = paper(json!([{ "do": { "fail": { "status": 503 } } }]));
    house.run(Arc::clone(&cases) as Arc<_>).await;
    let job = house.submit(&[&["a.pdf"]]).await;
    let before = house.until(job, "N2 is forced", closed).await;
    assert_eq!(only(&before)["is_retryable"], true, "left as it was");
    cases.script().replace(Vec::new());
    // Due, and an event of old times arrives for it.
    house.bring_due().await;
    let row = before["rows"][0]["file_job_row_id"].clone();
    let late = json!({
        "event_id": Uuid::now_v7(), "event_type": "EVIDENCE_ATTACH_RETRY", "occurred_at": "2025-10-08T10:33:00Z",
        "file_job_id": job, "file_job_row_id": row, "case_id": before["rows"][0]["case_id"], "artifacts": [],
        "schema_version": 1
    });
    task_consumer::create_tasks(&mut house.connect().await, &[message(RETRIES, &late)])
        .await
        .unwrap();
    house.schedule().await;
    within(LONG, "no task is left", async || {
        house
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    let after = house.get(job).await;
    assert_eq!(only(&after)["attempt_count"], 1);
    assert_eq!(after["n2_sent_at"], before["n2_sent_at"]);
    assert_eq!(cases.calls().len(), 1);
    assert_eq!(waiting(&house, RETRIES).await.len(), 0);
}

#[tokio::test]
async fn correction_11_a_row_that_is_not_due_or_scheduled_already_is_not_put_again() {
    let house = House::new().await;
    house.publish().await;
    house.arm();
    house.attach(paper(json!([{ "do": { "fail": { "status": 503 } } }])));
    let job = house.submit(&[&["a.pdf"]]).await;
    house.tried(job).await;
    house.schedule().await;
    let rounds = async || -> i32 {
        house
            .scalar("select retry_round from evidence.file_job_row")
            .await
    };
    assert_eq!(rounds().await, 0, "not due for five minutes");
    house.bring_due().await;
    // The same tick again and again; only a message that never arrives, for the workers are too late.
    house
        .execute("update evidence.file_job_artifact set held_by = null")
        .await;
    let status = async || -> String {
        house
            .scalar("select retry_status::text from evidence.file_job_artifact")
            .await
    };
    let (first, second) = (house.scheduler(), house.scheduler());
    let stop = tokio_util::sync::CancellationToken::new();
    let (one, two) = tokio::join!(first.tick(&stop), second.tick(&stop));
    one.unwrap();
    two.unwrap();
    assert_eq!(rounds().await, 1, "two schedulers behave as one");
    assert_ne!(status().await, "PENDING");
    house.schedule().await;
    assert_eq!(rounds().await, 1);
}

#[tokio::test]
async fn correction_12_a_retry_repeats_neither_permanent_failures_nor_what_is_not_due() {
    let house = House::new().await;
    let cases = paper(json!([
        { "file_name": "perm", "do": { "fail": { "status": 422 } } },
        { "do": { "fail": { "status": 503 } } },
    ]));
    house.publish().await;
    house.arm();
    house.attach(Arc::clone(&cases) as Arc<_>);
    let job = house.submit(&[&["due.pdf", "perm.pdf", "later.pdf"]]).await;
    house.tried(job).await;
    house
        .execute(
            "update evidence.file_job_artifact set next_retry_at = now() where file_name = 'due.pdf'",
        )
        .await;
    house.schedule().await;
    let view = house
        .until(job, "it was retried", |view| {
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
    // A first event that comes again acts on nothing that was tried.
    let row = view["rows"][0]["file_job_row_id"].clone();
    let again = json!({
        "event_id": Uuid::now_v7(), "event_type": "EVIDENCE_ATTACH", "occurred_at": "2025-10-08T10:33:00Z",
        "file_job_id": job, "file_job_row_id": row, "case_id": view["rows"][0]["case_id"], "artifacts": [],
        "schema_version": 1
    });
    task_consumer::create_tasks(&mut house.connect().await, &[message(REQUESTS, &again)])
        .await
        .unwrap();
    within(LONG, "no task is left", async || {
        house
            .scalar::<i64>("select count(*) from evidence.attach_task")
            .await
            == 0
    })
    .await;
    assert_eq!(cases.calls().len(), 4);
}

#[tokio::test]
async fn correction_13_a_delivery_that_dies_marks_its_untried_artifacts_so_that_n1_comes() {
    let house = House::new().await;
    let job = house.submit(&[&["a.pdf", "b.pdf"]]).await;
    let events = waiting(&house, REQUESTS).await;
    task_consumer::create_tasks(&mut house.connect().await, &[message(REQUESTS, &events[0])])
        .await
        .unwrap();
    // It has cost ten workers their lives.
    house
        .execute(
            "update evidence.attach_task set state = 'leased', lease_until = now() - interval '1 s', fence = 1,
                    lease_owner = 'gone', losses = 10",
        )
        .await;
    house.publish().await;
    house.notify();
    house.attach(paper(json!([])));
    let view = house
        .until(job, "N1 is out", |view| view["n1_sent_at"].is_string())
        .await;
    assert_eq!(view["errors"], json!({ "SYSTEM_ERROR": 2 }));
    let n1 = &view["notifications"][0]["body"];
    assert_eq!((&n1["failed"], &n1["will_retry"]), (&json!(2), &json!(2)));
    let dead: i64 = house
        .scalar("select count(*) from evidence.attach_task where state = 'dead'")
        .await;
    assert_eq!(dead, 1, "and it is a dead letter");
}

#[tokio::test]
async fn correction_13_an_event_that_dies_on_its_way_does_so_too() {
    let house = House::new().await;
    let job = house.submit(&[&["a.pdf"]]).await;
    house
        .execute(
            "update postrider.outbox set state = 'dead', finished_at = now(), attempts = 1, error_code = 'TOO_LARGE', cause = 'TOO_LARGE'",
        )
        .await;
    house.schedule().await;
    let view = house.get(job).await;
    assert_eq!(only(&view)["attachment_error_code"], "SYSTEM_ERROR");
    assert!(view["n1_sent_at"].is_string(), "{view}");
}

#[tokio::test]
async fn correction_14_each_artifact_keeps_the_limit_that_it_was_ingested_with() {
    let house = House::with(json!({ "retry": { "max_attempts": 1 } })).await;
    let job = house.submit(&[&["a.pdf"]]).await;
    let cases = paper(json!([{ "do": { "fail": { "status": 503 } } }]));
    house.publish().await;
    house.arm();
    // Another configuration since: three attempts.
    house.attach_with(&settings(quick_retries()), Arc::clone(&cases) as Arc<_>);
    house.notify();
    let view = house.until(job, "it is closed", closed).await;
    assert_eq!(only(&view)["is_retryable"], false);
    assert_eq!(only(&view)["retry_status"], "PERMANENT_FAILED");
    let kept: i32 = house
        .scalar("select max_retries from evidence.file_job_artifact")
        .await;
    assert_eq!(kept, 0);
    assert_eq!(cases.calls().len(), 1);
}
