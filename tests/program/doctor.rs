//! `postrider doctor` on a live database and on others.

use postrider_testkit::TestDb;
use serde_json::Value;

use crate::program::{Serving, data_dir, run_with, stderr, stdout};

#[tokio::test]
async fn doctor_examines_a_running_server_without_disturbing_it() {
    let dir = data_dir();
    let path = dir.path().to_str().unwrap();
    let none = run_with(&["doctor", "--data-dir", path]).await;
    assert_eq!(none.status.code(), Some(4));
    assert!(stderr(&none).contains("no database"), "{}", stderr(&none));

    let serving = Serving::on(dir.path(), &[]).await;
    let while_running = run_with(&["doctor", "--json", "--data-dir", path]).await;
    let answer: Value = serde_json::from_slice(&while_running.stdout).unwrap();
    let findings = answer["findings"].as_array().unwrap();
    let ill: Vec<&Value> = findings
        .iter()
        .filter(|f| f["severity"] == "warning" || f["severity"] == "critical")
        // How full this machine's disk is, is not what is tested.
        .filter(|f| f["check"] != "server/disk")
        .collect();
    assert!(ill.is_empty(), "{ill:#?}");
    let code = Some(i32::from(answer["worst"] == "critical"));
    assert_eq!(while_running.status.code(), code);
    assert!(findings.len() > 40, "{}", findings.len());
    assert_eq!(serving.json("/healthz").await["status"], "ok");
    assert!(serving.terminate().await.success());

    let stopped = run_with(&["doctor", "--all", "--data-dir", path]).await;
    assert_eq!(stopped.status.code(), code, "{}", stderr(&stopped));
    assert!(stdout(&stopped).contains("I2/lease postrider.outbox"));
}

#[tokio::test]
async fn doctor_reports_a_missing_schema_as_critical_and_migrates_nothing() {
    let db = TestDb::new().await;
    let url = db.url();
    let output = run_with(&["doctor", "--database-url", &url]).await;
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let said = stdout(&output);
    assert!(
        said.contains("critical schema/table postrider.outbox"),
        "{said}"
    );
    assert!(said.contains("`postrider migrate`"), "{said}");
    let made: bool = sqlx::query_scalar("select to_regnamespace('postrider') is not null")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    assert!(!made);
}
