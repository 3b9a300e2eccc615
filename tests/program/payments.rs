//! Payments from outside: the command line, and a wallet with its own database.

use std::time::Duration;

use postrider_testkit::{TestDb, within};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::io::AsyncReadExt;
use uuid::Uuid;

use crate::{
    commands::token,
    program::{Serving, data_dir, postrider, run, run_with, stderr, stdout},
};

/// Long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn command_line_makes_shows_lists_and_reconciles_a_payment() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &["--set", "payments.reconcile.after=0"]).await;
    let server = serving.base().to_owned();
    let call = async |group: &str, more: &[&str]| {
        let output = run_with(&[&[group, "--server", &server, "--json"], more].concat()).await;
        let answer: Value = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        (output.status.code(), answer)
    };
    let open = ["open", "acc-1", "--currency", "USD", "--balance", "100"];
    assert_eq!(call("wallet", &open).await.0, Some(0));
    let uuid = Uuid::now_v7().to_string();
    let pay = [
        "pay",
        "--account",
        "acc-1",
        "--amount",
        "12.50",
        "--currency",
        "USD",
        "--uuid",
        &uuid,
        "--wait",
    ];
    let (code, paid) = call("payments", &pay).await;
    assert_eq!((code, &paid["status"]), (Some(0), &json!("SUCCEED")));
    assert_eq!(call("payments", &["show", &uuid]).await.1, paid);
    let too_much = [
        "pay",
        "--account",
        "acc-1",
        "--amount",
        "100",
        "--currency",
        "USD",
        "--wait",
    ];
    let (code, refused) = call("payments", &too_much).await;
    assert_eq!(
        (code, &refused["reason"]),
        (Some(1), &json!("INSUFFICIENT_FUNDS"))
    );
    // The server says what is wrong with it.
    let negative = pay.map(|word| if word == "12.50" { "-5" } else { word });
    assert_eq!(call("payments", &negative).await.0, Some(7));
    let (_, listed) = call("payments", &["list", "--status", "succeed"]).await;
    assert_eq!(listed["items"], json!([paid]));
    let (_, account) = call("wallet", &["show", "acc-1", "--entries"]).await;
    assert_eq!(account["balance"], "87.50");
    assert_eq!(account["entries"][0]["uuid"], json!(uuid));
    let (code, report) = call("payments", &["reconcile"]).await;
    assert_eq!((code, &report["settled"]), (Some(0), &json!(0)));
    let unknown = Uuid::nil().to_string();
    assert_eq!(call("payments", &["show", &unknown]).await.0, Some(7));
    let doctor = run_with(&[
        "doctor",
        "--json",
        "--data-dir",
        dir.path().to_str().unwrap(),
    ])
    .await;
    let doctor: Value = serde_json::from_str(&stdout(&doctor)).unwrap();
    let findings = doctor["findings"].as_array().unwrap();
    // How full this machine's disk is, is not what is tested.
    let critical = |f: &&Value| f["severity"] == "critical" && f["check"] != "server/disk";
    assert_eq!(findings.iter().find(critical), None);
}

#[tokio::test]
async fn wallet_with_its_own_database_is_migrated_used_and_examined() {
    let (db, wallet) = (TestDb::new().await, TestDb::new().await);
    let other = format!("payments.wallet.database_url={}", wallet.url());
    let url = db.url();
    let place = ["--database-url", &url, "--set", &other];
    let assured = ["--set", "payments.delivery=assured"];
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let serving = Serving::start(&postrider(&[&serve[..], &place, &assured].concat())).await;
    let http = reqwest::Client::new();
    let account = json!({ "account_id": "acc-1", "currency": "USD", "balance": "5" });
    let path = format!("{}/wallet/accounts", serving.base());
    let opened = http.post(path).json(&account).send().await.unwrap();
    assert_eq!(opened.status().as_u16(), 201);
    let body = json!({ "account_id": "acc-1", "amount": "1.25", "currency": "USD" });
    let path = format!("{}/payments", serving.base());
    let receipt: Value = http
        .post(path)
        .json(&body)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let uuid = receipt["uuid"].as_str().unwrap().to_owned();
    within(TIMEOUT, "it is paid", async || {
        let view = serving.json(&format!("/payments/{uuid}")).await;
        if view["status"] == "SUCCEED" {
            Ok(())
        } else {
            Err(view)
        }
    })
    .await;
    let here = number(&db.pool(), "select count(*) from wallet.inbox").await;
    let there = number(&wallet.pool(), "select count(*) from wallet.inbox").await;
    assert_eq!((here, there), (0, 1));
    assert!(serving.terminate().await.success());
    let doctor = run_with(&[&["doctor", "--json"], &place[..]].concat()).await;
    let doctor: Value = serde_json::from_str(&stdout(&doctor)).unwrap();
    let looks = doctor["findings"].as_array().unwrap();
    let agrees = looks
        .iter()
        .filter(|f| f["check"].as_str().unwrap().contains("balance-agrees"));
    assert_eq!(agrees.count(), 2, "both databases are examined");
    // The test server trades safety for speed, which the doctor notices.
    let ill = |f: &&Value| f["severity"] == "critical" && f["check"] != "server/settings";
    assert_eq!(looks.iter().filter(ill).count(), 0, "{doctor}");
}

#[tokio::test]
async fn dead_callbacks_of_a_wallet_with_its_own_database_are_listed_with_all_dead_letters() {
    let (db, wallet) = (TestDb::new().await, TestDb::new().await);
    let other = format!("payments.wallet.database_url={}", wallet.url());
    let url = db.url();
    let place = ["--database-url", &url, "--set", &other];
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let assured = ["--set", "payments.delivery=assured"];
    let serving = Serving::start(&postrider(&[&serve[..], &place, &assured].concat())).await;
    let dead = async |words: &[&str]| -> Value {
        let from = ["--server", serving.base(), "--json"];
        let output = run_with(&[&["dead"], words, &from].concat()).await;
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let away = wallet.pool();
    // These payments have no request, so the orchestrator rejects their callbacks.
    let owed = "insert into wallet.outbox (uuid, outcome) select gen_random_uuid(), 'SUCCEED' from generate_series(1, 3)";
    sqlx::query(owed).execute(&away).await.unwrap();
    let is_dead = async |n: i64| {
        within(TIMEOUT, "all of them are dead", async || {
            let dead = "select count(*) from wallet.outbox where status = 'EXHAUSTED'";
            let dead = number(&away, dead).await;
            if dead == n { Ok(()) } else { Err(dead) }
        })
        .await;
    };
    is_dead(3).await;
    let list = ["list", "--filter", "service:payments", "--limit", "2"];
    let page = dead(&list).await;
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = dead(&[&list[..], &["--cursor", cursor]].concat()).await;
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(1), "{rest}");
    let one = &page["items"][0];
    assert_eq!(one["work_table"], "wallet.outbox", "{one}");
    let (id, died_at) = (one["id"].to_string(), &one["died_at"]);
    let shown = dead(&["show", "wallet.outbox", &id]).await;
    assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(1));
    let groups = dead(&["list", "--groups"]).await;
    assert_eq!(groups["items"][0]["count"], 3, "{groups}");
    let html = serving.get("/dead?filter=").send().await.unwrap();
    assert!(html.text().await.unwrap().contains("wallet.outbox"));

    let only = format!("table:wallet.outbox id:{id}");
    let done = dead(&["redrive", "--filter", &only, "--yes", "--wait"]).await;
    assert_eq!(done["changed"], 1, "{done}");
    is_dead(3).await;
    within(TIMEOUT, "it was tried again", async || {
        let page = dead(&["list", "--limit", "1"]).await;
        let newest = &page["items"][0];
        if newest["id"] == one["id"] && newest["died_at"] != *died_at {
            Ok(())
        } else {
            Err(page)
        }
    })
    .await;
    let done = dead(&["archive", "--filter", "service:payments", "--yes", "--wait"]).await;
    assert_eq!(done["changed"], 3, "{done}");
    assert_eq!(dead(&["list"]).await["items"], json!([]));
    let archived = "select count(*) from postrider.archive where work_table = 'wallet.outbox'";
    assert_eq!(number(&away, archived).await, 3);
}

const PAY: &str = "payments pay --account acc-1 --amount 1 --currency USD --wait --json --server";

/// Opens an account, pays from it on the command line and waits.
async fn pay_and_wait(serving: &Serving) -> std::process::Output {
    let open = "wallet open acc-1 --currency USD --balance 100 --server";
    let words = |text: &'static str| text.split(' ').chain([serving.base()]).collect::<Vec<_>>();
    let opened = run_with(&words(open)).await;
    assert!(opened.status.success(), "{}", stderr(&opened));
    run_with(&words(PAY)).await
}

#[tokio::test]
async fn wait_for_a_stuck_payment_exits_with_1_and_the_reason() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let url = db.url();
    let unknown = "payments.callback.url=http://127.0.0.1:1";
    let serving = Serving::on(dir.path(), &["--database-url", &url, "--set", unknown]).await;
    let output = pay_and_wait(&serving).await;
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let view: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&view["status"], &view["reason"]),
        (&json!("PENDING"), &json!("CALLBACK_FAILED"))
    );
    let (said, uuid) = (stderr(&output), view["uuid"].as_str().unwrap());
    assert!(
        said.contains(uuid) && said.contains("CALLBACK_FAILED"),
        "{said}"
    );
}

#[tokio::test]
async fn wait_for_a_payment_survives_a_server_restart() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let url = db.url();
    let place = ["--database-url", &url];
    let serve = ["serve", "--data-dir", dir.path().to_str().unwrap()];
    let first = ["--listen", "127.0.0.1:0", "--roles", "api"];
    let serving = Serving::start(&postrider(&[&serve[..], &place, &first].concat())).await;
    let address = serving.base().trim_start_matches("http://").to_owned();
    let pool = db.pool();
    let restart = async {
        within(TIMEOUT, "it is accepted", async || {
            match number(&pool, "select count(*) from payments.request").await {
                1 => Ok(()),
                other => Err(other),
            }
        })
        .await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(serving);
        let again = ["--listen", &address];
        Serving::start(&postrider(&[&serve[..], &place, &again].concat())).await
    };
    let open = format!("wallet open acc-1 --currency USD --balance 5 --server http://{address}");
    let opened = run_with(&open.split(' ').collect::<Vec<_>>()).await;
    assert!(opened.status.success(), "{}", stderr(&opened));
    let pay = format!("{PAY} http://{address}");
    let pay = postrider(&pay.split(' ').collect::<Vec<_>>());
    let (output, _serving) = tokio::join!(run(pay), restart);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let view: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(view["status"], "SUCCEED");
}

#[tokio::test]
async fn failed_wait_names_the_accepted_payment() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let url = db.url();
    // It may pay, but not look.
    let (token, allowed) = token("submit").await;
    let serving = Serving::on(dir.path(), &["--database-url", &url, "--set", &allowed]).await;
    let words = PAY.split(' ').chain([serving.base(), "--token", &token]);
    let output = run_with(&words.collect::<Vec<_>>()).await;
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let uuid: Uuid = sqlx::query_scalar("select uuid from payments.request")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    let said = stderr(&output);
    assert!(
        said.contains(&format!("postrider payments show {uuid}")) && said.contains("read"),
        "{said}"
    );
}

#[tokio::test]
async fn payment_with_a_lost_response_can_be_repeated_by_its_uuid() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    // It takes the payment and goes away without a word.
    let robber = tokio::spawn(async move {
        let (mut caller, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            caller.read_buf(&mut request).await.unwrap();
        }
        let body = request.iter().position(|byte| *byte == b'{').unwrap();
        serde_json::from_slice::<Value>(&request[body..]).unwrap()
    });
    let output = run_with(&PAY.split(' ').chain([server.as_str()]).collect::<Vec<_>>()).await;
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let sent = robber.await.unwrap();
    let repeat = format!("--uuid {}", sent["uuid"].as_str().unwrap());
    assert!(stderr(&output).contains(&repeat), "{}", stderr(&output));
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}
