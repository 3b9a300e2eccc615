//! Operating from outside: overview, timeline and dead letters.

use std::process::Command;
use std::time::Duration;

use postrider_testkit::{TestDb, within};
use serde_json::{Value, json};
use sqlx::{Executor, PgPool};

use crate::{
    evidence::archive,
    orders::order,
    program::{Serving, data_dir, postrider, run_with, stderr, stdout},
};

/// Twelve dead messages with two causes.
const DEAD: &str = "
insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_message, cause)
select 'letters', json_build_object('n', n), 'dead', now() - make_interval(mins => n), 3, c.code, c.code || ' at ' || n, c.code || ': ' || c.code || ' at <n>'
from generate_series(1, 12) n, lateral (select case when n % 3 = 0 then 'REFUSED' else 'TIMEOUT' end as code) c;
insert into postrider.attempt (work_table, item_id, attempt, worker, started_at, outcome, code, message)
values ('postrider.outbox', 1, 3, 'w', now(), 'dead', 'TIMEOUT', 'TIMEOUT at 1')";

/// Aborted orders, as a rejection by the broker leaves them.
const ABORTED: &str = "
insert into postrider.ledger (scope, key, digest, state, finished_at)
select 'orders', 'old-' || n, decode(repeat('00', 32), 'hex'), 'failed', now() from generate_series(1, 200) n;
insert into orders.outbox_orders (idempotency_key, order_request_json, request_digest, status, finished_at, attempts, last_error_code, cause)
select 'old-' || n, json_build_object('idempotency_key', 'old-' || n, 'symbol', 'ACME'), repeat('0', 64), 'aborted', now(), 3, 'TIMEOUT', 'TIMEOUT: '
from generate_series(1, 200) n";

fn serve(db: &TestDb, more: &[&str]) -> Command {
    let url = db.url();
    postrider(
        &[
            &["serve", "--listen", "127.0.0.1:0", "--database-url", &url],
            more,
        ]
        .concat(),
    )
}

async fn ask(server: &str, words: &[&str]) -> (Option<i32>, Value) {
    let output = run_with(&[words, &["--server", server, "--json"]].concat()).await;
    let said = if output.status.success() {
        stdout(&output)
    } else {
        stderr(&output)
    };
    let document = serde_json::from_str(&said);
    (
        output.status.code(),
        // The caller reports output that isn't JSON.
        document.unwrap_or(Value::String(said)),
    )
}

async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn dead_letters_are_listed_grouped_previewed_redriven_and_archived() {
    let db = TestDb::new().await;
    let serving = Serving::start(&serve(&db, &["--roles", "api,scheduler"])).await;
    let server = serving.base().to_owned();
    let pool = db.pool();
    pool.execute(DEAD).await.unwrap();

    let (_, page) = ask(
        &server,
        &[
            "dead",
            "list",
            "--filter",
            "service:messages code:TIMEOUT",
            "--limit",
            "5",
        ],
    )
    .await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(5), "{page}");
    let cursor = page["next_cursor"].as_str().unwrap();
    let (_, rest) = ask(
        &server,
        &[
            "dead",
            "list",
            "--filter",
            "service:messages code:TIMEOUT",
            "--limit",
            "5",
            "--cursor",
            cursor,
        ],
    )
    .await;
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(3), "{rest}");
    let (code, refusal) = ask(&server, &["dead", "list", "--cursor", cursor]).await;
    assert_eq!(code, Some(7));
    assert_eq!(refusal["error"]["code"], "invalid-cursor", "{refusal}");
    let (_, groups) = ask(&server, &["dead", "list", "--groups"]).await;
    assert_eq!(groups["items"][0]["cause"], "TIMEOUT: TIMEOUT at <n>");
    assert_eq!(groups["items"][0]["count"], 8);
    let (code, refusal) = ask(&server, &["dead", "list", "--filter", "sort:x"]).await;
    assert_eq!(code, Some(7));
    assert!(
        refusal["error"]["message"]
            .as_str()
            .unwrap()
            .contains("invalid-filter"),
        "{refusal}"
    );

    let empty = serving.post("/dead-letters/redrive");
    let empty = empty.json(&json!({ "filter": " ", "dry_run": true }));
    assert_eq!(empty.send().await.unwrap().status(), 422, "not all of them");
    let timeouts = r#"cause:"TIMEOUT: TIMEOUT at <n>""#;
    let (_, preview) = ask(&server, &["dead", "redrive", "--filter", timeouts]).await;
    assert_eq!(preview["matching"], 8);
    let few = ["dead", "redrive", "--filter", timeouts, "--most"];
    let (_, preview) = ask(&server, &[&few[..], &["3"]].concat()).await;
    assert_eq!(preview["matching"], 3);
    let (code, _) = ask(&server, &[&few[..], &["0"]].concat()).await;
    assert_eq!(code, Some(7), "rejected before anything is done");
    assert_eq!(
        number(&pool, "select count(*) from postrider.operation").await,
        0,
        "a preview changes nothing"
    );
    let (code, done) = ask(
        &server,
        &[
            "dead",
            "redrive",
            "--filter",
            timeouts,
            "--yes",
            "--wait",
            "--reason",
            "it is back",
        ],
    )
    .await;
    assert_eq!(
        (code, &done["state"], &done["changed"]),
        (Some(0), &json!("done"), &json!(8))
    );
    assert_eq!(
        number(
            &pool,
            "select count(*) from postrider.outbox where state = 'ready' and attempts = 0"
        )
        .await,
        8
    );
    let (_, item) = ask(&server, &["dead", "show", "postrider.outbox", "1"]).await;
    assert_eq!(item["dead"], false);
    assert_eq!(item["payload"]["n"], 1);
    assert_eq!(item["attempts"][0]["code"], "TIMEOUT");
    assert_eq!(item["audit"][0]["reason"], "it is back");
    assert_timeline(
        &server,
        "postrider.outbox/1",
        "item",
        &["attempt 3: dead", "redrive by"],
    )
    .await;
    pool.execute("select postrider.enqueue('t', trace => '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')")
        .await
        .unwrap();
    assert_timeline(
        &server,
        "0af7651916cd43dd8448eb211c80319c",
        "message",
        &["accepted for t"],
    )
    .await;

    let (_, done) = ask(&server, &["dead", "archive", "--all", "--yes", "--wait"]).await;
    assert_eq!(done["changed"], 4);
    assert_eq!(
        number(&pool, "select count(*) from postrider.archive").await,
        4
    );
    let (_, listed) = ask(&server, &["dead", "operations"]).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(
        ask(&server, &["dead", "show", "postrider.outbox", "999"])
            .await
            .0,
        Some(7)
    );
    assert_eq!(
        ask(&server, &["dead", "redrive"]).await.0,
        Some(2),
        "which ones must be said"
    );
    // As from a script whose variable was not set.
    for blank in ["", "  "] {
        let (code, refusal) = ask(&server, &["dead", "archive", "--filter", blank, "--yes"]).await;
        assert_eq!(code, Some(2));
        let said = refusal["error"]["message"].as_str().unwrap();
        assert!(said.contains("--all"), "{said}");
    }

    let overview = serving.json("/overview").await;
    let messages = &overview["services"][0];
    assert_eq!(
        (
            &messages["name"],
            &messages["ready"]["count"],
            &messages["dead"]["count"]
        ),
        (&json!("messages"), &json!(9), &json!(0))
    );
}

#[tokio::test]
async fn redrive_keeps_its_rate_survives_its_process_and_does_not_starve_live_work() {
    let db = TestDb::new().await;
    let serving = Serving::start(&serve(&db, &[])).await;
    let pool = db.pool();
    pool.execute(ABORTED).await.unwrap();
    let server = serving.base().to_owned();
    let (_, skipped) = ask(
        &server,
        &[
            "dead",
            "redrive",
            "--filter",
            "service:orders",
            "--yes",
            "--wait",
            "--most",
            "10",
        ],
    )
    .await;
    assert_eq!(
        (&skipped["changed"], &skipped["skipped"]),
        (&json!(0), &json!(200)),
        "orders may be stale"
    );

    let redrive = [
        "dead",
        "redrive",
        "--filter",
        "service:orders",
        "--yes",
        "--rate",
        "20",
        "--allow-stale",
    ];
    let (_, begun) = ask(&server, &redrive).await;
    assert_eq!(begun["state"], "running");
    serving.kill().await;
    // Another process continues it and accepts new orders.
    let serving = Serving::start(&serve(&db, &[])).await;
    let http = reqwest::Client::new();
    for n in 0..20 {
        let post = http
            .post(format!("{}/do/order", serving.base()))
            .json(&order(&format!("live-{n}")));
        assert!(post.send().await.unwrap().status().is_success());
    }
    let state = format!("/dead-letters/operations/{}", begun["id"]);
    within(Duration::from_secs(90), "live orders are sent", async || {
        let sent = number(&pool, "select count(*) from orders.outbox_orders where idempotency_key like 'live-%' and status = 'succeeded'").await;
        if sent == 20 { Ok(()) } else { Err(sent) }
    })
    .await;
    assert_eq!(
        serving.json(&state).await["state"],
        "running",
        "live work waits for no backlog"
    );
    within(Duration::from_secs(120), "the redrive ends", async || {
        let ahead = number(&pool, "select changed - ceil(extract(epoch from clock_timestamp() - created_at) * rate)::bigint from postrider.operation where rate is not null").await;
        assert!(ahead <= 0, "{ahead} more than its rate allows");
        let operation = serving.json(&state).await;
        if operation["state"] == "done" { Ok(()) } else { Err(operation) }
    })
    .await;
    within(Duration::from_secs(90), "all are sent", async || {
        let sent = number(
            &pool,
            "select count(*) from orders.outbox_orders where status = 'succeeded'",
        )
        .await;
        if sent == 220 { Ok(()) } else { Err(sent) }
    })
    .await;
    assert_eq!(
        number(&pool, "select count(*) from orders.paper_orders").await,
        220,
        "each once"
    );
}

/// The names of a timeline's events.
fn events(timeline: &Value) -> Vec<&str> {
    let events = timeline["events"].as_array().map_or(&[][..], Vec::as_slice);
    events
        .iter()
        .filter_map(|event| event["what"].as_str())
        .collect()
}

/// Checks that the timeline of this id contains these events in this order.
async fn assert_timeline(server: &str, id: &str, kind: &str, wanted: &[&str]) -> Value {
    let (code, timeline) = ask(server, &["trace", id]).await;
    assert_eq!(code, Some(0), "{id}: {timeline}");
    assert_eq!(timeline["subjects"][0]["kind"], kind, "{timeline}");
    let events = events(&timeline);
    let mut rest = events.iter();
    for what in wanted {
        assert!(
            rest.any(|event| event.contains(what)),
            "{id}: no {what:?} in order among {events:?}"
        );
    }
    timeline
}

#[tokio::test]
async fn timeline_of_any_id_covers_the_request_to_the_end_in_every_service() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let server = serving.base().to_owned();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };

    let send = [
        "orders",
        "send",
        "--key",
        "k-1",
        "--account",
        "A1",
        "--symbol",
        "ACME",
        "--side",
        "buy",
        "--quantity",
        "1",
        "--wait",
    ];
    assert_eq!(ask(&server, &send).await.0, Some(0));
    assert_timeline(
        &server,
        "k-1",
        "order",
        &["accepted", "sent to the broker", "accepted by the broker"],
    )
    .await;

    let open = [
        "wallet",
        "open",
        "acc-1",
        "--currency",
        "USD",
        "--balance",
        "100",
    ];
    assert_eq!(ask(&server, &open).await.0, Some(0));
    let uuid = uuid::Uuid::now_v7().to_string();
    let pay = [
        "payments",
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
    assert_eq!(ask(&server, &pay).await.0, Some(0));
    let timeline = assert_timeline(
        &server,
        &uuid,
        "payment",
        &[
            "requested",
            "handled by the wallet: SUCCEED",
            "settled: SUCCEED",
        ],
    )
    .await;
    let message = timeline["subjects"]
        .as_array()
        .unwrap()
        .iter()
        .find(|subject| subject["kind"] == "message");
    let message = message.unwrap_or_else(|| panic!("{timeline}"))["key"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_timeline(&server, &message, "message", &["published"]).await;

    let inputs = json!({ "inputs": [{ "indexKey": "ABC", "effectiveDate": 20_240_202, "asofindicator": "CLS" }] });
    let inputs = file("inputs.json", inputs.to_string().as_bytes());
    let (_, job) = ask(&server, &["exports", "submit", &inputs, "--wait"]).await;
    let job = job["jobId"].as_str().unwrap_or_else(|| panic!("{job}"));
    assert_timeline(
        &server,
        job,
        "export job",
        &["submitted", "file generated", "completed"],
    )
    .await;

    let text = file("p.txt", b"Inclusion: age over 18 years.");
    let (_, protocol) = ask(
        &server,
        &["protocols", "upload", &text, "--title", "T", "--wait"],
    )
    .await;
    let protocol = protocol["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{protocol}"));
    assert_timeline(
        &server,
        protocol,
        "protocol",
        &["uploaded", "protocol_uploaded done", "pending_review"],
    )
    .await;

    let zip = file("e.zip", &archive(1));
    let (_, job) = ask(
        &server,
        &["evidence", "submit", &zip, "--merchant", "m-1", "--wait"],
    )
    .await;
    let job = job["file_job_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{job}"));
    assert_timeline(
        &server,
        job,
        "file job",
        &["submitted", "attach attached", "N1", "closed"],
    )
    .await;

    assert_eq!(
        ask(&server, &["trace", "nothing-of-this-name"]).await.0,
        Some(7)
    );
    let shown = stdout(&run_with(&["status", "--server", &server]).await);
    for word in ["ready", "orders", "protocols", "workers"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let top = run_with(&["top", "--server", &server]).await;
    assert!(
        stdout(&top).contains("done/min") && !stdout(&top).contains('\x1b'),
        "one frame, plain"
    );
    let (_, top) = ask(&server, &["top"]).await;
    assert_eq!(top["services"].as_array().unwrap().len(), 6);
}
