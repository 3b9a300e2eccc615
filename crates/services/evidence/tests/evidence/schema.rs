//! The schema as users query it.

use postrider_evidence::{ATTACH_TASKS, model::Code};

use crate::support::Fixture;

#[tokio::test]
async fn every_documented_column_exists() {
    let fixture = Fixture::new().await;
    for (table, columns) in [
        (
            "file_job_artifact",
            "id file_job_id file_job_row_id case_id file_name file_type file_size_bytes s3_key attachment_status \
             attachment_error_code attachment_error_message attached_at attempt_count retry_count retry_status \
             next_retry_at last_retry_at error_category is_retryable created_at updated_at",
        ),
        (
            "file_job_row",
            "evidence_count evidence_attached_count evidence_failed_count evidence_status evidence_failed_files \
             evidence_completed_at",
        ),
        ("file_job", "id n1_sent_at n2_sent_at"),
    ] {
        let found: Vec<String> = sqlx::query_scalar(
            "select column_name::text from information_schema.columns where table_schema = 'evidence' and table_name = $1",
        )
        .bind(table)
        .fetch_all(&fixture.pool)
        .await
        .unwrap();
        for column in columns.split_whitespace() {
            assert!(found.iter().any(|name| name == column), "{table}.{column}");
        }
    }
}

#[tokio::test]
async fn database_and_program_agree_on_the_category_of_every_code() {
    let fixture = Fixture::new().await;
    for code in Code::ALL {
        let category: String = sqlx::query_scalar("select evidence.error_category($1)")
            .bind(code.as_str())
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
        assert_eq!(category, code.category().as_str(), "{code:?}");
    }
    let unknown: String = fixture
        .scalar("select evidence.error_category('SOMETHING')")
        .await;
    assert_eq!(unknown, "SYSTEM");
    let seeds: String = fixture
        .scalar("select evidence.error_category('UNAUTHORIZED')")
        .await;
    assert_eq!(seeds, "AUTH");
}

#[tokio::test]
async fn every_task_statement_can_be_prepared() {
    let fixture = Fixture::new().await;
    let queue = postrider::lease::Queue::new(&ATTACH_TASKS).unwrap();
    fixture
        .execute(
            "insert into evidence.attach_task (event_id, file_job_id, file_job_row_id, is_retry)
             select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), false from generate_series(1, 5000)",
        )
        .await;
    fixture.execute("analyze evidence.attach_task").await;
    let mut connection = fixture.pool.acquire().await.unwrap();
    for (name, text) in queue.statements() {
        let prepared = sqlx::AssertSqlSafe(format!("prepare s as {text}"));
        sqlx::raw_sql(prepared)
            .execute(&mut *connection)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        sqlx::raw_sql("deallocate s")
            .execute(&mut *connection)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn doctor_checks_find_faults_and_accept_healthy_data() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(&[&["a.pdf"]]).await;
    fixture
        .run(crate::support::simulated_cases(serde_json::json!([])))
        .await;
    fixture
        .wait_until(job, "it is closed", |view| view["status"] == "COMPLETED")
        .await;
    let findings = async || {
        let mut found = Vec::new();
        for check in postrider_evidence::CHECKS {
            let rows: Vec<String> = sqlx::query_scalar(check.query)
                .fetch_all(&fixture.pool)
                .await
                .unwrap();
            if !rows.is_empty() {
                found.push(check.name);
            }
        }
        found
    };
    assert!(findings().await.is_empty());
    fixture.execute("delete from evidence.attach_attempt").await;
    fixture
        .execute("delete from evidence.notification where kind = 'evidence.n2'")
        .await;
    assert_eq!(
        findings().await,
        [
            "evidence/counts-follow-journal",
            "evidence/markers-have-notifications"
        ]
    );
}
