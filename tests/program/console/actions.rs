//! Actions on a job: everything that the command line offers for one job.

use postrider_testkit::{Program, within};
use serde_json::{Value, json};

use super::{Fixture, TIMEOUT};
use crate::{
    evidence::{archive, cases},
    orders::order,
    program::{data_dir, postrider},
};

/// A protocol whose criteria are all found.
const TEXT: &str = "Inclusion Criteria\n1. Age 18 years or older\n2. Type 2 diabetes mellitus\n\nExclusion Criteria\n1. Pregnant\n";

impl Fixture {
    /// Starts an action from the item's timeline and confirms it; returns the result page.
    async fn perform(&self, id: &str, action: &str, reason: &str) -> String {
        self.ask(id, action).await;
        self.page.fill("input[name=reason]", reason).await;
        if self
            .page
            .eval("document.querySelector('[name=acknowledged]') !== null")
            .await
            == true
        {
            self.page.click("input[name=acknowledged]").await;
        }
        self.page.follow("#yes").await;
        self.page.text().await
    }

    /// The page that asks for confirmation.
    pub(super) async fn ask(&self, id: &str, action: &str) {
        let button = format!("button[name=perform][value={action}]");
        let there = format!("document.querySelector({button:?}) !== null");
        within(TIMEOUT, action, async || {
            self.open(&format!("/trace/{id}")).await;
            match self.page.eval(&there).await {
                Value::Bool(true) => Ok(()),
                _ => Err(self.page.text().await),
            }
        })
        .await;
        self.page.follow(&button).await;
        self.assert_fits(action).await;
    }

    /// The reason of the last such action in the audit.
    async fn audited(&self, action: &str) -> Option<String> {
        sqlx::query_scalar("select reason from postrider.audit where action = $1 order by id desc")
            .bind(action)
            .fetch_optional(&self.db.pool())
            .await
            .unwrap()
            .flatten()
    }

    async fn upload(&self, kind: &str, text: &'static str) -> String {
        let request = self.serving.post("/protocols?title=GLUCOSE-1");
        let request = request.header("content-type", kind).body(text);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        answer["id"].as_str().expect("a protocol").to_owned()
    }
}

#[tokio::test]
async fn order_can_be_cancelled_and_a_rejection_is_shown_on_the_page() {
    // No worker sends it.
    let Some(fixture) = Fixture::with(&["--roles", "api,console"]).await else {
        return;
    };
    let page = &fixture.page;
    page.scripts(false).await;
    fixture.post("/do/order", &order("ok-1")).await;
    fixture.ask("ok-1", "cancel").await;
    let asked = page.text().await;
    assert!(
        asked.contains("buy 10 ACME") && asked.contains("pending"),
        "{asked}"
    );
    let before = fixture.serving.json("/do/order/ok-1").await;
    assert_eq!(before["outbox"]["status"], "pending", "asking does nothing");
    let text = fixture.perform("ok-1", "cancel", "the client rang").await;
    assert!(text.contains("will never be sent to the broker"), "{text}");
    fixture.assert_no_errors();
    let after = fixture.serving.json("/do/order/ok-1").await;
    assert_eq!(after["result"]["reason_code"], "CANCELLED");
    assert_eq!(
        fixture.audited("cancel").await.as_deref(),
        Some("the client rang")
    );
    let text = fixture.perform("ok-1", "redrive", "or not").await;
    assert!(
        text.contains("it was cancelled; post a new order"),
        "{text}"
    );
}

#[tokio::test]
async fn aborted_order_is_redriven_only_after_confirming_that_it_may_be_stale() {
    let dir = data_dir();
    let script = dir.path().join("broker.json");
    let reject =
        json!([{ "symbol": "ACME", "times": 1, "do": { "reject": { "reason_code": "HALTED" } } }]);
    std::fs::write(&script, reject.to_string()).unwrap();
    let words = ["sim", "broker", "--listen", "127.0.0.1:0", "--script"];
    let words = [&words[..], &[script.to_str().unwrap()]].concat();
    let mut broker = Program::start(&postrider(&words));
    let line = broker.line_with("listens on ").await;
    let url = line.split_once("listens on ").unwrap().1.trim();
    let Some(fixture) = Fixture::with(&["--set", &format!("orders.broker.url={url}")]).await else {
        return;
    };
    fixture.post("/do/order", &order("ok-1")).await;
    fixture.ask("ok-1", "redrive").await;
    let page = &fixture.page;
    page.fill("input[name=reason]", "the halt is over").await;
    page.eval("document.querySelector('[name=acknowledged]').required = false")
        .await;
    page.follow("#yes").await;
    let text = page.text().await;
    assert!(text.contains("Tick “Send it even though"), "{text}");
    let kept = page
        .eval("document.querySelector('[name=reason]').value")
        .await;
    assert_eq!(kept, "the halt is over", "nothing is typed twice");
    page.click("input[name=acknowledged]").await;
    page.follow("#yes").await;
    let text = page.text().await;
    assert!(text.contains("will be sent as soon as"), "{text}");
    fixture.open_until("/trace/ok-1", &["succeeded"]).await;
}

#[tokio::test]
async fn failed_export_can_be_redriven_and_open_one_cancelled() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    let failed = fixture.dead_letter("NONE").await;
    sqlx::query("insert into public.prices values ('NONE', 1)")
        .execute(&fixture.db.pool())
        .await
        .unwrap();
    let text = fixture
        .perform(&failed, "redrive", "the rows are there")
        .await;
    assert!(text.contains("1 input starts again."), "{text}");
    fixture.until_job(&failed, "COMPLETED").await;
    let Fixture {
        db, page, serving, ..
    } = fixture;
    serving.kill().await;

    let dir = data_dir();
    let url = db.url();
    let idle = ["--database-url", &url, "--roles", "api,console"];
    let fixture = Fixture {
        serving: crate::program::Serving::on(dir.path(), &idle).await,
        db,
        page,
        _dir: dir,
    };
    let input = json!({ "indexKey": "NONE", "effectiveDate": 20_240_203, "asofindicator": "CLS" });
    let job = fixture.post("/jobs", &json!({ "inputs": [input] })).await;
    let open = job["jobId"].as_str().unwrap();
    let text = fixture.perform(open, "cancel", "submitted twice").await;
    assert!(text.contains("no other input starts"), "{text}");
    fixture.until_job(open, "CANCELLED").await;
    fixture.assert_no_errors();
}

#[tokio::test]
async fn failed_evidence_can_be_retried_immediately() {
    let dir = data_dir();
    let script = dir.path().join("cases.json");
    let busy =
        json!([{ "file_name": "busy", "first_calls": 1, "do": { "fail": { "status": 503 } } }]);
    std::fs::write(&script, busy.to_string()).unwrap();
    let (_cases, url) = cases(&script).await;
    let cases = format!("evidence.case_api.url={url}");
    // Otherwise it would wait for an hour.
    let later = "evidence.retry.backoff.initial_delay=3600";
    let latest = "evidence.retry.backoff.max_delay=3600";
    let words = ["--set", &cases, "--set", later, "--set", latest];
    let Some(fixture) = Fixture::with(&words).await else {
        return;
    };
    let request = fixture.serving.post("/file-jobs?merchant_id=m-1");
    let request = request.header("content-type", "application/zip");
    let job: Value = request
        .body(archive(2))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let id = job["file_job_id"].as_str().expect("a job");
    fixture
        .open_until(&format!("/trace/{id}"), &["being retried"])
        .await;
    let text = fixture
        .perform(id, "retry", "the case system is back")
        .await;
    assert!(
        text.contains("1 file is retried now; 0 not due yet."),
        "{text}"
    );
    fixture
        .open_until("/services/evidence", &["COMPLETED", "6 of 6"])
        .await;
    fixture.assert_no_errors();
}

#[tokio::test]
async fn protocol_can_be_rejected_approved_and_retried() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    let id = fixture.upload("text/plain", TEXT).await;
    let text = fixture.perform(&id, "reject", "one is missing").await;
    assert!(text.contains("goes back to the extraction"), "{text}");
    fixture.ask(&id, "approve").await;
    let asked = fixture.page.text().await;
    assert!(
        asked.contains("Type 2 diabetes mellitus") && asked.contains("Pregnant"),
        "the page shows the criteria: {asked}"
    );
    let text = fixture.perform(&id, "approve", "all are there").await;
    assert!(text.contains("The protocol is complete."), "{text}");
    let view = fixture.serving.json(&format!("/protocols/{id}")).await;
    assert_eq!(
        (&view["status"], &view["metadata"]["review"]["reason"]),
        (&json!("complete"), &json!("all are there"))
    );
    let broken = fixture
        .upload("application/pdf", "%PDF-1.7 and nothing else")
        .await;
    let text = fixture.perform(&broken, "retry", "another reader").await;
    assert!(text.contains("starts again with the extraction"), "{text}");
    let view = fixture.serving.json(&format!("/protocols/{broken}")).await;
    assert_eq!(view["try"], 2);
    fixture.assert_no_errors();
}
