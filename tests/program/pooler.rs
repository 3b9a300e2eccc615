//! The program behind a real PgBouncer.

use postrider_testkit::TestDb;
use postrider_testkit::builders::Serve;
use postrider_testkit::pooler::{Mode, Pooler};
use serde_json::Value;

use crate::program::{BINARY, Serving, assert_payment_succeeds, data_dir, run_with, stderr};

#[tokio::test]
async fn program_works_behind_a_pooler_in_session_mode() {
    let db = TestDb::new().await;
    let Some(pooler) = Pooler::start(&db, Mode::Session).await else {
        return;
    };
    let dir = data_dir();
    let mut command = Serve::new(BINARY, dir.path()).command();
    command.args(["--database-url", pooler.url()]);
    let serving = Serving::start(&command).await;
    assert_payment_succeeds(serving.base()).await;
    assert!(serving.terminate().await.success());

    let examined = run_with(&["doctor", "--all", "--json", "--database-url", pooler.url()]).await;
    let answer: Value = serde_json::from_slice(&examined.stdout).unwrap();
    let findings = answer["findings"].as_array().unwrap();
    let found = findings.iter().find(|f| f["check"] == "server/pooler");
    assert_eq!(found.unwrap()["severity"], "ok", "{found:?}");
}

#[tokio::test]
async fn pooler_that_mixes_up_prepared_statements_is_rejected_at_startup() {
    let db = TestDb::new().await;
    let Some(pooler) = Pooler::start(&db, Mode::Transaction).await else {
        return;
    };
    for command in ["serve", "migrate", "doctor"] {
        let refused = run_with(&[command, "--database-url", pooler.url()]).await;
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(4), "{command}: {said}");
        assert!(
            said.contains("database.url leads to a pooler"),
            "{command}: {said}"
        );
        assert!(said.contains("session mode"), "{command}: {said}");
    }
    let made: bool = sqlx::query_scalar("select to_regnamespace('postrider') is not null")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    assert!(!made);
}
