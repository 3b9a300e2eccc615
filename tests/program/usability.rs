//! What a newcomer meets first: short logs, commands that find the running server, waits that end, readable errors.

use std::time::{Duration, Instant};

use postrider_testkit::TestDb;
use serde_json::{Value, json};

use crate::program::{Serving, data_dir, postrider, run, run_with, stderr, stdout};

#[tokio::test]
async fn the_first_start_logs_its_migrations_in_one_line() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let mut serving = Serving::on(dir.path(), &["--database-url", &db.url()]).await;
    let up_to_date = serving.log_line("database schema is up to date").await;
    let log = serving.log();
    let lines: Vec<&String> = log
        .iter()
        .filter(|line| line.contains("migration"))
        .collect();
    assert_eq!(lines, [&up_to_date], "{log:?}");
}

#[tokio::test]
async fn doctor_and_config_ask_the_running_server_when_no_option_names_another() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let changed = ["--set", "orders.concurrency=7"];
    let serving = Serving::on(
        dir.path(),
        &[&["--database-url", &db.url()][..], &changed].concat(),
    )
    .await;
    let ask = async |words: &[&str]| {
        let mut command = postrider(words);
        command.env("POSTRIDER_SERVER", serving.base());
        run(command).await
    };
    let diagnosis: Value =
        serde_json::from_str(&stdout(&ask(&["doctor", "--json"]).await)).unwrap();
    assert!(diagnosis["findings"].as_array().unwrap().len() > 40);
    let config = ask(&["config"]).await;
    let text = stdout(&config);
    assert!(
        text.starts_with("# Configuration of the server at "),
        "{text}"
    );
    assert!(text.contains("orders.concurrency = 7"), "{text}");
    let own = stdout(&ask(&["config", "--local"]).await);
    assert!(own.contains("what `postrider serve` would use"), "{own}");
    assert!(!own.contains("concurrency = 7 "), "{own}");
    let json: Value = serde_json::from_str(&stdout(&ask(&["config", "--json"]).await)).unwrap();
    assert_eq!(json["orders.concurrency"]["value"], 7);
}

#[tokio::test]
async fn config_says_that_no_server_is_running() {
    let output = run_with(&["config", "--server", "http://127.0.0.1:1"]).await;
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.starts_with("# No server answers at http://127.0.0.1:1"),
        "{text}"
    );
}

#[tokio::test]
async fn a_wait_ends_with_8_after_its_timeout_and_says_how_to_go_on() {
    let (db, dir) = (TestDb::new().await, data_dir());
    // Nothing works on the order.
    let idle = ["--database-url", &db.url(), "--roles", "api"];
    let serving = Serving::on(dir.path(), &idle).await;
    let words = "orders send --key k-1 --account A1 --symbol ACME --side buy --quantity 1 --wait --timeout 1s --server";
    let words: Vec<&str> = words.split(' ').chain([serving.base()]).collect();
    let started = Instant::now();
    let output = run_with(&words).await;
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
    assert!(started.elapsed() < Duration::from_secs(30));
    let message = stderr(&output);
    for part in [
        "order k-1 was accepted",
        "after 1s",
        "`postrider orders show k-1`",
        "--timeout",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[tokio::test]
async fn errors_name_the_flag_and_what_was_expected() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let serving = Serving::on(dir.path(), &["--database-url", &db.url(), "--roles", "api"]).await;
    let fails = async |words: &str| {
        let words: Vec<&str> = words
            .split(' ')
            .chain(["--server", serving.base()])
            .collect();
        let output = run_with(&words).await;
        assert_eq!(output.status.code(), Some(7), "{}", stdout(&output));
        stderr(&output)
    };
    let amount = fails("payments pay --account a --amount -1 --currency USD").await;
    assert!(amount.contains("--amount: "), "{amount}");
    let account = fails("orders send --key k --account= --symbol A --side buy --quantity 1").await;
    assert!(account.contains("--account: "), "{account}");
    for words in ["payments show hello", "evidence show hello"] {
        let message = fails(words).await;
        assert!(
            message.contains("\"hello\" is not an id: expected a UUID such as "),
            "{words}: {message}"
        );
    }
}

#[tokio::test]
async fn one_dead_letter_is_not_called_letters() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let serving = Serving::on(dir.path(), &["--database-url", &db.url(), "--roles", "api"]).await;
    sqlx::query("insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_category, error_message, cause) values ('t', $1, 'dead', now(), 1, 'X', 'permanent', 'm', 'X m')")
        .bind(json!({}))
        .execute(&db.pool())
        .await
        .unwrap();
    let output = run_with(&["dead", "redrive", "--all", "--server", serving.base()]).await;
    assert!(
        stdout(&output).contains("would redrive 1 dead letter;"),
        "{}",
        stdout(&output)
    );
}
