//! The screenshots of docs/console.md, taken from the running program with all five services at work.
//!
//! `make screenshots` stores them in `docs/console` after some minutes of load; otherwise the
//! same steps take a few seconds and nothing is stored.

use std::{path::PathBuf, time::Duration};

use postrider_testkit::{
    Program, TestDb,
    browser::{self, DESKTOP, PHONE, Page, Window},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    evidence,
    orders::order,
    program::{Serving, data_dir, postrider},
};

/// Directory for the pictures. Not set: none are stored.
const PICTURES_DIR: &str = "POSTRIDER_PICTURES";

/// Minutes of load before the pictures are taken; 0 if none are stored.
const MINUTES: &str = "POSTRIDER_PICTURES_MINUTES";

/// Maximum size of a picture.
const MAX_PICTURE_BYTES: usize = 200 * 1024;

/// Every ninth order fails once, one symbol is unknown and one is never accepted.
fn broker_script() -> Value {
    json!([
        { "symbol": "HALTED", "do": { "fail": { "status": 500 } } },
        { "symbol": "DELISTED", "do": { "reject": { "reason_code": "UNKNOWN_SYMBOL" } } },
        { "every": 9, "do": { "fail": { "status": 500 } } },
    ])
}

fn case_script() -> Value {
    json!([
        { "file_name": "busy", "first_calls": 1, "do": { "fail": { "status": 500 } } },
        { "file_name": "bad", "do": { "fail": { "status": 422 } } },
    ])
}

struct Fixture {
    serving: Serving,
    page: Page,
    place: Option<PathBuf>,
}

impl Fixture {
    async fn post(&self, path: &str, kind: &str, body: impl Into<reqwest::Body>) {
        let request = self.serving.post(path).header("content-type", kind);
        let answer = request.body(body).send().await.unwrap();
        let status = answer.status();
        assert!(
            status.is_success(),
            "{path}: {status} {:?}",
            answer.text().await
        );
    }

    async fn json(&self, path: &str, body: &Value) {
        self.post(path, "application/json", body.to_string()).await;
    }

    /// One round of requests to every service.
    async fn work(&self, round: usize) {
        for n in 0..(2 + round * 7 % 5) {
            let mut order = order(&format!("ord-{round:04}-{n}"));
            let symbols = ["ACME", "GLOBEX", "INITECH", "UMBRELLA", "ACME", "HOOLI"];
            order["symbol"] = json!(match (round % 40, n) {
                (7, 1) => "HALTED",
                (19, 0) => "DELISTED",
                _ => symbols[(round + n) % symbols.len()],
            });
            order["account"] = json!(format!("A{}", n + 1));
            order["side"] = json!(if (round + n).is_multiple_of(3) {
                "sell"
            } else {
                "buy"
            });
            order["quantity"] = json!(((round * 13 + n * 7) % 90 + 1).to_string());
            self.json("/do/order", &order).await;
            let payment = json!({
                "uuid": Uuid::new_v4(), "account_id": format!("acc-{}", n % 4), "currency": "USD",
                "amount": format!("{}.25", (round + n) % 11 + 1), "description": format!("Invoice {}", 1000 + round),
            });
            self.json("/payments", &payment).await;
        }
        if round.is_multiple_of(5) {
            let day = |n: usize| 20_240_101 + (round / 5 + n) % 28;
            let input = |n: usize| {
                let index = ["ABC", "DEF", "GHI"][n % 3];
                let index = if round % 50 == 5 && n == 3 {
                    "XYZ"
                } else {
                    index
                };
                json!({ "indexKey": index, "effectiveDate": day(n / 3), "asofindicator": "CLS" })
            };
            let inputs: Vec<Value> = (0..24).map(input).collect();
            self.json("/jobs", &json!({ "inputs": inputs })).await;
        }
        if round % 12 == 1 {
            let path = format!("/file-jobs?merchant_id=merchant-{}", round % 7);
            self.post(&path, "application/zip", evidence::archive(6))
                .await;
        }
        if round % 9 == 2 {
            let titles = [
                "GLUCOSE-1%3A%20metformin%20and%20diet",
                "CARDIO-7%3A%20pressure%20at%20night",
                "RENAL-3%3A%20early%20markers",
            ];
            let path = format!("/protocols?title={}", titles[round / 9 % 3]);
            let text = "Inclusion Criteria\n1. Age 18 years or older\n2. Type 2 diabetes mellitus\n\nExclusion Criteria\n1. Pregnant\n";
            self.post(&path, "text/plain", text).await;
        }
        if round == 4 {
            let broken = "%PDF-1.7 and nothing else";
            self.post(
                "/protocols?title=SCAN-9%3A%20unreadable%20scan",
                "application/pdf",
                broken,
            )
            .await;
        }
    }

    async fn picture(&self, name: &str, path: &str, window: Window, dark: bool) {
        self.page.window(window).await;
        self.page.dark(dark).await;
        self.page
            .open(&format!("{}{path}", self.serving.base()))
            .await;
        self.keep(name).await;
    }

    async fn keep(&self, name: &str) {
        let picture = self.page.picture(false).await;
        assert!(picture.len() > 5_000, "{name} shows nothing");
        if let Some(place) = &self.place {
            assert!(
                picture.len() < MAX_PICTURE_BYTES,
                "{name} has {} bytes",
                picture.len()
            );
            std::fs::write(place.join(format!("{name}.png")), picture).unwrap();
        }
    }
}

async fn simulator(words: &[&str]) -> (Program, String) {
    let mut program = Program::start(&postrider(words));
    let line = program.line_with("listens on ").await;
    let url = line.split_once("listens on ").unwrap().1.trim().to_owned();
    (program, url)
}

#[tokio::test]
async fn console_shows_all_five_services_at_work() {
    let Some(page) = browser::page().await else {
        return;
    };
    let (db, dir) = (TestDb::new().await, data_dir());
    let script = |name: &str, script: Value| {
        let file = dir.path().join(name);
        std::fs::write(&file, script.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let broker = script("broker.json", broker_script());
    let (_broker, broker) = simulator(&[
        "sim",
        "broker",
        "--listen",
        "127.0.0.1:0",
        "--script",
        &broker,
    ])
    .await;
    let cases = script("cases.json", case_script());
    let (_cases, cases) = simulator(&[
        "sim",
        "cases",
        "--listen",
        "127.0.0.1:0",
        "--script",
        &cases,
    ])
    .await;
    let (broker, cases) = (
        format!("orders.broker.url={broker}"),
        format!("evidence.case_api.url={cases}"),
    );
    let url = db.url();
    let words = [
        "--database-url",
        &url,
        "--set",
        &broker,
        "--set",
        &cases,
        "--set",
        "orders.backoff=[0.5,1,2]",
        "--set",
        "evidence.retry.backoff.initial_delay=5s",
        "--set",
        "evidence.scheduler.interval=2s",
        "--set",
        "evidence.scheduler.sleep_between_batches=100ms",
    ];
    let fixture = Fixture {
        serving: Serving::on(dir.path(), &words).await,
        page,
        place: std::env::var_os(PICTURES_DIR).map(PathBuf::from),
    };
    for account in 0..4 {
        let account =
            json!({ "account_id": format!("acc-{account}"), "currency": "USD", "balance": "4000" });
        fixture.json("/wallet/accounts", &account).await;
    }
    let minutes = std::env::var(MINUTES).ok().and_then(|m| m.parse().ok());
    let until = Instant::now() + Duration::from_secs(60 * minutes.unwrap_or(0));
    let mut round = 0;
    while round < 10 || Instant::now() < until {
        fixture.work(round).await;
        round += 1;
        if minutes.is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    // The charts don't draw the current interval, and one order must be dead.
    postrider_testkit::within(Duration::from_secs(120), "an order is dead", async || {
        let dead = fixture
            .serving
            .json("/dead-letters?filter=service:orders")
            .await;
        dead["items"][0]["id"].as_i64()
    })
    .await;
    walk(&fixture).await;
    let troubles = fixture.page.errors();
    assert!(troubles.is_empty(), "{troubles:#?}");
}

async fn walk(fixture: &Fixture) {
    for (name, path) in [
        ("overview", "/"),
        ("orders", "/services/orders"),
        ("payments", "/services/payments"),
        ("exports", "/services/exports"),
        ("evidence", "/services/evidence"),
        ("protocols", "/services/protocols"),
        ("dead", "/dead"),
        ("alerts", "/alerts/board"),
        ("search", "/search?q=no-such-key"),
    ] {
        fixture.picture(name, path, DESKTOP, false).await;
    }
    for (name, path) in [("overview-dark", "/"), ("dead-dark", "/dead")] {
        fixture.picture(name, path, DESKTOP, true).await;
    }
    fixture.picture("overview-phone", "/", PHONE, false).await;
    fixture
        .picture("dead-phone-dark", "/dead", PHONE, true)
        .await;
    let dead = fixture
        .serving
        .json("/dead-letters?filter=service:orders")
        .await;
    let letter = &dead["items"][0];
    let (table, id) = (letter["work_table"].as_str().unwrap(), &letter["id"]);
    fixture
        .picture(
            "dead-letter",
            &format!("/dead/{table}/{id}"),
            DESKTOP,
            false,
        )
        .await;
    let aborted = fixture
        .serving
        .json("/do/order?status=aborted&limit=1")
        .await;
    let key = aborted["items"][0]["idempotency_key"].as_str().unwrap();
    let timeline = format!("/trace/{key}");
    fixture.picture("timeline", &timeline, DESKTOP, false).await;
    fixture
        .page
        .follow("button[name=perform][value=redrive]")
        .await;
    fixture.keep("action").await;
    fixture
        .picture("confirm", "/dead?filter=service:orders", DESKTOP, false)
        .await;
    fixture.page.follow("button[value='redrive all']").await;
    fixture.keep("confirm").await;
}
