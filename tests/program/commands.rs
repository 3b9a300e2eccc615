//! Commands, their output and their exit codes.

use postrider_testkit::TestDb;
use serde_json::Value;

use crate::program::{Serving, data_dir, postrider, run, run_with, stderr, stdout};

/// A token with these scopes, and the setting that allows only it.
pub async fn token(scopes: &str) -> (String, String) {
    let made = run_with(&["token", "--name", "t", "--scopes", scopes, "--json"]).await;
    let made: Value = serde_json::from_str(&stdout(&made)).unwrap();
    let setting = format!(
        "server.tokens=[{{ name = {}, sha256 = {}, scopes = {} }}]",
        made["name"], made["sha256"], made["scopes"]
    );
    (made["token"].as_str().unwrap().to_owned(), setting)
}

#[tokio::test]
async fn invalid_configuration_reports_every_problem_and_exits_with_3() {
    let mut command = postrider(&["serve", "--set", "databse.url=x"]);
    command.env("POSTRIDER_SERVER__LISTEN", "nowhere");
    let output = run(command).await;
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    assert!(
        said.contains("did you mean database.url?") && said.contains("server.listen"),
        "{said}"
    );
}

#[tokio::test]
async fn refuses_to_listen_beyond_loopback_without_tokens() {
    let output = run_with(&["serve", "--listen", "0.0.0.0:0"]).await;
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("server.tokens"),
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn unavailable_database_exits_with_4_and_reveals_no_secret() {
    for (host, secret) in [("127.0.0.1:1", "s3cr3t-hunter2")] {
        let url = format!("postgres://me:{secret}@{host}/x");
        let patience = "database.connect_timeout=100ms";
        let set = ["--set", patience, "--set", "log.level=trace"];
        let output = run_with(&[&["migrate", "--database-url", &url][..], &set].concat()).await;
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("does not answer: ")
                && stderr(&output).contains("Connection refused"),
            "{}",
            stderr(&output)
        );
        assert!(
            !stderr(&output).contains(secret) && !stdout(&output).contains(secret),
            "{}",
            stderr(&output)
        );
    }
}

#[tokio::test]
async fn dry_run_creates_no_database() {
    let dir = data_dir();
    let place = dir.path().join("none");
    let output = run_with(&[
        "migrate",
        "--dry-run",
        "--data-dir",
        place.to_str().unwrap(),
    ])
    .await;
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(!place.exists());
}

#[tokio::test]
async fn cursor_that_starts_with_a_hyphen_is_not_an_option() {
    // One in 64 does.
    for list in [&["dead", "list"][..], &["evidence", "show", "7"]] {
        let output =
            run_with(&[list, &["--cursor", "-aQ", "--server", "http://127.0.0.1:1"]].concat())
                .await;
        assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn id_that_no_path_can_contain_exits_with_2_before_a_request_is_sent() {
    // Dots and nothing would be left out of the path, and the request would be another one.
    for words in [
        &["payments", "show", ".."][..],
        &["orders", "cancel", "."],
        &["exports", "redrive", ""],
        &["trace", ".\t."],
    ] {
        let output = run_with(&[words, &["--server", "http://127.0.0.1:1"]].concat()).await;
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("is not a valid id or key"),
            "{}",
            stderr(&output)
        );
    }
}

#[tokio::test]
async fn invalid_server_address_exits_with_2() {
    for server in ["notaurl", "localhost:8080"] {
        for command in [&["status"][..], &["top", "--once"]] {
            let output = run_with(&[command, &["--server", server]].concat()).await;
            assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
            assert!(
                stderr(&output).contains("http://127.0.0.1:8080"),
                "{}",
                stderr(&output)
            );
        }
    }
}

#[tokio::test]
async fn status_reports_a_rejected_token() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let url = db.url();
    let (_, allowed) = token("read").await;
    let serving = Serving::on(dir.path(), &["--database-url", &url, "--set", &allowed]).await;
    let status = ["status", "--json", "--server", serving.base()];
    let without = run_with(&status).await;
    assert!(without.status.success(), "{}", stderr(&without));
    let wrong = run_with(&[&status[..], &["--token", "pt_wrong"]].concat()).await;
    assert_eq!(wrong.status.code(), Some(7), "{}", stderr(&wrong));
    assert!(
        stderr(&wrong).contains("the token was refused"),
        "{}",
        stderr(&wrong)
    );
    assert!(stdout(&wrong).contains("ready"), "{}", stdout(&wrong));
}

#[tokio::test]
async fn wrong_usage_exits_with_2_and_an_unreachable_server_with_6() {
    assert_eq!(run_with(&["srve"]).await.status.code(), Some(2));
    assert_eq!(
        run_with(&["serve", "--roles", "wroker"])
            .await
            .status
            .code(),
        Some(2)
    );
    let status = run_with(&["status", "--server", "http://127.0.0.1:1"]).await;
    assert_eq!(status.status.code(), Some(6));
    assert!(
        stderr(&status).contains("postrider serve"),
        "{}",
        stderr(&status)
    );
}

#[tokio::test]
async fn json_failures_are_one_object_on_standard_error() {
    let output = run_with(&["config", "--json", "--set", "log.format=xml"]).await;
    assert!(output.stdout.is_empty());
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["code"], "config");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("log.format")
    );
}

#[tokio::test]
async fn empty_list_is_a_sentence_and_a_rejection_has_the_error_code_of_the_api() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let serving = Serving::on(dir.path(), &["--database-url", &db.url()]).await;
    let server = ["--server", serving.base()];
    for (words, expected) in [
        (&["orders", "list"][..], "no orders\n"),
        (&["payments", "list"], "no payments\n"),
        (&["exports", "list"], "no export jobs\n"),
        (&["evidence", "list"], "no file jobs\n"),
        (&["protocols", "list"], "no protocols\n"),
        (&["dead", "list"], "no dead letters\n"),
        (&["dead", "list", "--groups"], "no dead letters\n"),
        (&["dead", "operations"], "no operations\n"),
    ] {
        let output = run_with(&[words, &server].concat()).await;
        assert_eq!(stdout(&output), expected, "{words:?}");
        let output = run_with(&[words, &server, &["--json"]].concat()).await;
        let page: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(page["items"], serde_json::json!([]), "{words:?}");
    }
    for (words, code) in [
        (&["orders", "show", "nothing"][..], "order-not-found"),
        (&["orders", "list", "--limit", "0"], "invalid-query"),
        (&["exports", "cancel", "nothing"], "export-job-not-found"),
    ] {
        let output = run_with(&[words, &server, &["--json"]].concat()).await;
        assert_eq!(output.status.code(), Some(7), "{words:?}");
        let error: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(error["error"]["code"], code, "{words:?}");
    }
}

#[tokio::test]
async fn json_wrong_usage_is_one_object_and_help_stays_text() {
    for words in [
        &["--json", "srve"][..],
        &["dead", "redrive", "--json"],
        &["payments", "--json"],
    ] {
        let output = run_with(words).await;
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        let error: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(error["error"]["code"], "usage");
        assert_ne!(error["error"]["message"], "");
    }
    let help = run_with(&["dead", "--json", "--help"]).await;
    assert!(help.status.success());
    assert!(stdout(&help).contains("Usage:"), "{}", stdout(&help));
}

#[tokio::test]
async fn dry_run_changes_nothing_and_shows_what_the_real_run_does() {
    let db = TestDb::new().await;
    let url = db.url();
    let migrations = async |args: &[&str]| {
        let output =
            run_with(&[&["migrate", "--json", "--database-url", &url][..], args].concat()).await;
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["migrations"].clone()
    };
    let planned = migrations(&["--dry-run"]).await;
    assert!(!planned.as_array().unwrap().is_empty());
    let schemas: i64 =
        sqlx::query_scalar("select count(*) from pg_namespace where nspname = 'postrider'")
            .fetch_one(&db.pool())
            .await
            .unwrap();
    assert_eq!(schemas, 0, "the dry run made nothing");
    assert_eq!(migrations(&[]).await, planned);
    assert_eq!(migrations(&["--dry-run"]).await, Value::Array(Vec::new()));
}

#[tokio::test]
async fn schema_mismatch_exits_with_5() {
    let db = TestDb::new().await;
    let url = db.url();
    let migrate = async || run_with(&["migrate", "--database-url", &url]).await;
    assert!(migrate().await.status.success());
    sqlx::query("insert into postrider.schema_migration select schema, 9999, '9999_future', checksum, now(), '0', '99.0' from postrider.schema_migration limit 1")
        .execute(&db.pool())
        .await
        .unwrap();
    let refused = migrate().await;
    assert_eq!(refused.status.code(), Some(5), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("upgrade the program"),
        "{}",
        stderr(&refused)
    );
}

#[tokio::test]
async fn old_schema_exits_with_5_when_migrations_are_off() {
    let db = TestDb::new().await;
    let url = db.url();
    let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--database-url", &url];
    args.extend(["--set", "database.migrate=false"]);
    let refused = run_with(&args).await;
    assert_eq!(refused.status.code(), Some(5), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("postrider migrate"),
        "{}",
        stderr(&refused)
    );
}

#[tokio::test]
async fn config_prints_effective_values_with_their_sources() {
    let mut command = postrider(&["config", "--listen", "127.0.0.1:9"]);
    command.env("POSTRIDER_LOG__FORMAT", "json");
    let text = stdout(&run(command).await);
    assert!(
        text.contains("127.0.0.1:9") && text.contains("flag --listen"),
        "{text}"
    );
    assert!(text.contains("env POSTRIDER_LOG__FORMAT"), "{text}");
}

#[tokio::test]
async fn completions_and_manual_page_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&run_with(&["completions", shell]).await).contains("migrate"));
    }
    assert!(stdout(&run_with(&["man"]).await).contains(".TH postrider"));
    let dir = data_dir();
    assert!(
        run_with(&["man", "--dir", dir.path().to_str().unwrap()])
            .await
            .status
            .success()
    );
    assert!(dir.path().join("postrider-serve.1").exists());
}
