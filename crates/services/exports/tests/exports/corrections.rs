//! The thirteen corrections of the design.

use std::time::Duration;

use axum::http::StatusCode;
use postrider::lease::{Claim, Outcome, Queue};
use postrider_exports::EXPORT_JOB_INPUT;
use serde_json::json;

use crate::support::{DEADLINE, Fixture, input, inputs, own_source, settings, within};

fn queue() -> Queue {
    Queue::new(&EXPORT_JOB_INPUT).unwrap()
}

#[tokio::test]
async fn correction_1_inputs_of_a_dead_worker_are_rescued() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(inputs(2)).await;
    let claim = Claim::new("doomed", Duration::from_millis(200), 2);
    drop(queue().claim(&fixture.pool, &claim).await.unwrap());
    assert_eq!(fixture.get(&job).await["running"], 2);
    fixture.start_worker(&settings(json!({})));
    fixture.wait_for_status(&job, "COMPLETED").await;
    let (attempts, losses): (i64, i64) =
        sqlx::query_as("select sum(attempt_count), sum(losses) from exports.export_job_input")
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
    assert_eq!(
        (attempts, losses),
        (0, 2),
        "a lost lease isn't a failed attempt"
    );
}

#[tokio::test]
async fn correction_2_stale_lease_cannot_settle_an_input() {
    let fixture = Fixture::new().await;
    fixture.submit(inputs(1)).await;
    let claim = Claim::new("me", Duration::from_millis(100), 1);
    let (late, item) = queue()
        .claim(&fixture.pool, &claim)
        .await
        .unwrap()
        .pop()
        .unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    let again = queue()
        .claim_suspect(&fixture.pool, "me", Duration::from_secs(60), &[item.id])
        .await
        .unwrap();
    assert!(again.is_some(), "the same worker claims again");
    let mut tx = fixture.pool.begin().await.unwrap();
    let settled = queue().settle_in(&mut tx, "me", late, Outcome::Done).await;
    assert!(
        matches!(settled, Err(postrider::Error::LostLease(_))),
        "{settled:?}"
    );
}

#[tokio::test]
async fn correction_3_the_first_claim_starts_the_job() {
    let fixture = Fixture::new().await;
    fixture
        .execute("create table source (key text, day date, asof text, n integer)")
        .await;
    // The source blocks on a lock, so that the job is observed while it runs.
    let mut lock = fixture.pool.begin().await.unwrap();
    sqlx::query("lock table source")
        .execute(&mut *lock)
        .await
        .unwrap();
    let job = fixture.submit(inputs(1)).await;
    fixture.start_worker(&settings(
        json!({ "source": { "query": own_source()["source"]["query"], "allow_empty": true } }),
    ));
    let view = fixture.wait_for_status(&job, "RUNNING").await;
    assert_eq!(view["running"], 1);
    let started = fixture
        .count("select count(*) from exports.export_job where started_at is not null")
        .await;
    assert_eq!(started, 1);
    lock.commit().await.unwrap();
    fixture.wait_for_status(&job, "COMPLETED").await;
}

#[tokio::test]
async fn correction_4_the_counts_add_up_while_an_input_waits_for_a_retry() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(inputs(2)).await;
    fixture.start_worker(&settings(json!({
        "source": { "query": "select * from not_there_yet where key = $1" }, "retry": { "base_delay_ms": 60_000 }
    })));
    let view = within(DEADLINE, "both wait for a retry", async || {
        let view = fixture.get(&job).await;
        if view["retrying"] == 2 {
            Ok(view)
        } else {
            Err(view)
        }
    })
    .await;
    assert_eq!(
        (&view["pending"], &view["total"], &view["status"]),
        (&json!(2), &json!(2), &json!("RUNNING"))
    );
    fixture.execute("create table not_there_yet (key text, n integer); insert into not_there_yet values ('K00000', 1), ('K00001', 1)").await;
    fixture
        .execute("update exports.export_job_input set next_retry_at = now()")
        .await;
    assert_eq!(
        fixture.wait_for_status(&job, "COMPLETED").await["retrying"],
        0
    );
}

#[tokio::test]
async fn correction_5_reuse_compares_calendar_days_not_numbers() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    // As numbers, 1 March minus 7 is less than any day of February; as days, it is 23 February (22 in a leap year).
    let days: Vec<i32> = sqlx::query_scalar(
        "select to_char((now() at time zone 'utc')::date - d, 'YYYYMMDD')::integer from unnest(array[0, 6, 7, 8, 40]) d",
    )
    .fetch_all(&fixture.pool)
    .await
    .unwrap();
    let inputs = || {
        days.iter()
            .map(|day| input("A", u32::try_from(*day).unwrap(), "CLS"))
            .collect()
    };
    let first = fixture.submit(inputs()).await;
    fixture.wait_for_status(&first, "COMPLETED").await;
    let second = fixture.submit(inputs()).await;
    let view = fixture.wait_for_status(&second, "COMPLETED").await;
    assert_eq!(
        (&view["filesGenerated"], &view["filesReused"]),
        (&json!(2), &json!(3)),
        "today and six days ago are too young"
    );
    let (status, _) = fixture.post(json!([input("A", 20_240_231, "CLS")])).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn correction_6_a_missing_file_is_generated_again() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let first = fixture.submit(inputs(1)).await;
    let view = fixture.wait_for_status(&first, "COMPLETED").await;
    std::fs::remove_file(fixture.file(view["dataContent"][0]["s3Path"].as_str().unwrap())).unwrap();
    let second = fixture.submit(inputs(1)).await;
    let view = fixture.wait_for_status(&second, "COMPLETED").await;
    assert_eq!(
        (&view["filesGenerated"], &view["filesReused"]),
        (&json!(1), &json!(0))
    );
    let path = view["dataContent"][0]["s3Path"].as_str().unwrap();
    assert!(path.contains(&second) && fixture.file(path).exists());
    let known: Vec<String> = sqlx::query_scalar("select s3_path from exports.export_artifact")
        .fetch_all(&fixture.pool)
        .await
        .unwrap();
    assert_eq!(known, [path]);
}

#[tokio::test]
async fn correction_7_a_job_can_be_cancelled() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(inputs(3)).await;
    let (status, view) = fixture.action(&job, "cancel").await;
    assert_eq!(
        (status, &view["status"]),
        (StatusCode::OK, &json!("CANCELLED"))
    );
    assert_eq!(
        fixture.action(&job, "cancel").await.0,
        StatusCode::OK,
        "it is idempotent"
    );
    let (status, problem) = fixture.action(&job, "redrive").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("export-job-not-redrivable"))
    );
    assert_eq!(
        fixture.action("J20200101_000001", "cancel").await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        fixture
            .count("select count(*) from postrider.audit where action = 'cancel'")
            .await,
        1
    );
    let other = fixture.submit(json!([input("Z", 20_240_202, "CLS")])).await;
    fixture.start_worker(&settings(json!({})));
    fixture.wait_for_status(&other, "COMPLETED").await;
    let view = fixture.get(&job).await;
    assert_eq!(
        (&view["status"], &view["pending"], &view["done"]),
        (&json!("CANCELLED"), &json!(3), &json!(0))
    );
    let (status, problem) = fixture.action(&other, "cancel").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("export-job-not-cancellable"))
    );
}

#[tokio::test]
async fn correction_8_redrive_reopens_the_job_and_keeps_finished_inputs() {
    let fixture = Fixture::new().await;
    fixture.execute("create table source (key text, day date, asof text, n integer); insert into source values ('A', '2024-02-02', 'CLS', 1)").await;
    fixture.start_worker(&settings(own_source()));
    let job = fixture
        .submit(json!([
            input("A", 20_240_202, "CLS"),
            input("B", 20_240_202, "CLS")
        ]))
        .await;
    let view = fixture.wait_for_status(&job, "FAILED").await;
    let finished: Option<time::OffsetDateTime> = sqlx::query_scalar(
        "select max(finished_at) from exports.export_job_input where status = 'SUCCEEDED'",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(
        (&view["failed"], fixture.action(&job, "cancel").await.0),
        (&json!(1), StatusCode::CONFLICT)
    );
    fixture
        .execute("insert into source values ('B', '2024-02-02', 'CLS', 1)")
        .await;
    assert_eq!(fixture.action(&job, "redrive").await.0, StatusCode::OK);
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    assert_eq!(
        (&view["done"], &view["failed"], &view["errorMessage"]),
        (&json!(2), &json!(0), &json!(null))
    );
    if finished.is_some() {
        let same: bool = sqlx::query_scalar(
            "select finished_at = $1 from exports.export_job_input where index_key = 'A'",
        )
        .bind(finished)
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
        assert!(same, "finished inputs are unchanged");
    }
    let (status, _) = fixture.action(&job, "redrive").await;
    assert_eq!(status, StatusCode::CONFLICT, "there is nothing to redrive");
}

#[tokio::test]
async fn correction_8_redriving_dead_letters_directly_reopens_the_job() {
    let fixture = Fixture::new().await;
    fixture
        .execute("create table source (key text, day date, asof text, n integer)")
        .await;
    fixture.start_worker(&settings(own_source()));
    let job = fixture.submit(inputs(3)).await;
    fixture.wait_for_status(&job, "FAILED").await;
    within(DEADLINE, "nothing runs", async || {
        fixture.get(&job).await["running"] == 0
    })
    .await;
    fixture.execute("insert into source select 'K0000' || k, '2024-02-02', 'CLS', 1 from generate_series(0, 2) k").await;
    let dead: Vec<i64> =
        sqlx::query_scalar("select id from exports.export_job_input where status = 'DLQ'")
            .fetch_all(&fixture.pool)
            .await
            .unwrap();
    let mut tx = fixture.pool.begin().await.unwrap();
    let operator = postrider::lease::Operator::new("operator");
    queue().redrive(&mut tx, &operator, &dead).await.unwrap();
    tx.commit().await.unwrap();
    fixture.wait_for_status(&job, "COMPLETED").await;
}

#[tokio::test]
async fn correction_9_running_inputs_of_a_cancelled_job_finish_and_others_never_start() {
    let fixture = Fixture::new().await;
    fixture.execute("create table source (key text, day date, asof text, n integer); insert into source select 'K0000' || k, '2024-02-02', 'CLS', 1 from generate_series(0, 4) k").await;
    let mut lock = fixture.pool.begin().await.unwrap();
    sqlx::query("lock table source")
        .execute(&mut *lock)
        .await
        .unwrap();
    let job = fixture.submit(inputs(5)).await;
    fixture.start_worker(&settings(
        json!({ "source": own_source()["source"], "concurrency": 1 }),
    ));
    within(DEADLINE, "the source is being read", async || {
        fixture.count("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like 'copy%' and datname = current_database()").await == 1
    })
    .await;
    assert_eq!(fixture.action(&job, "cancel").await.0, StatusCode::OK);
    lock.commit().await.unwrap();
    let view = within(DEADLINE, "the running input has finished", async || {
        let view = fixture.get(&job).await;
        if view["done"] == 1 && view["running"] == 0 {
            Ok(view)
        } else {
            Err(view)
        }
    })
    .await;
    assert_eq!(
        (&view["status"], &view["pending"]),
        (&json!("CANCELLED"), &json!(4))
    );
    fixture.finalize().await;
    let claimable = fixture.count("select count(*) from exports.export_job_input where finished_at is null and next_retry_at < 'infinity'").await;
    assert_eq!(claimable, 0);
}

#[tokio::test]
async fn correction_11_closed_jobs_stay_closed_and_their_inputs_are_not_started() {
    let fixture = Fixture::new().await;
    let jobs = [
        fixture.submit(inputs(1)).await,
        fixture.submit(inputs(1)).await,
        fixture.submit(inputs(1)).await,
    ];
    fixture.execute("update exports.export_job set completed_at = now(), status = case right(job_key, 1) when '1' then 'COMPLETED' when '2' then 'FAILED' else 'CANCELLED' end, error_message = 'x'").await;
    fixture.start_worker(&settings(json!({})));
    let other = fixture.submit(json!([input("Z", 20_240_202, "CLS")])).await;
    fixture.wait_for_status(&other, "COMPLETED").await;
    // A finished input must not complete a failed or cancelled job, and a dead one must not fail a completed one.
    fixture.execute("update exports.export_job_input set status = 'SUCCEEDED', finished_at = now(), s3_path = 'x', lease_until = null, fence = null, lease_owner = null where index_key <> 'Z'").await;
    fixture.finalize().await;
    fixture.execute("update exports.export_job_input set status = 'DLQ', error_code = 'X', cause = 'X' where index_key <> 'Z'").await;
    fixture.finalize().await;
    for (job, status) in jobs.iter().zip(["COMPLETED", "FAILED", "CANCELLED"]) {
        assert_eq!(fixture.get(job).await["status"], status);
    }
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_artifact where index_key <> 'Z'")
            .await,
        0,
        "nothing was generated"
    );
}

#[tokio::test]
async fn correction_12_keys_with_colliding_file_names_are_rejected() {
    let fixture = Fixture::new().await;
    let (status, _) = fixture
        .post(json!([input("A", 20_240_101, "20240202_CLS")]))
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    fixture.start_worker(&settings(json!({})));
    let job = fixture
        .submit(json!([
            input("A_20240101", 20_240_202, "CLS"),
            input("A", 20_240_101, "20240202-CLS")
        ]))
        .await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    assert_ne!(
        view["dataContent"][0]["s3Path"],
        view["dataContent"][1]["s3Path"]
    );
    assert_eq!(
        fixture
            .post(json!([input(".A", 20_240_101, "CLS")]))
            .await
            .0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
}

#[tokio::test]
async fn correction_13_a_claim_updates_no_index() {
    let fixture = Fixture::new().await;
    let touched: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_index i join pg_class c on c.oid = i.indexrelid
         where i.indrelid = 'exports.export_job_input'::regclass
           and pg_get_indexdef(i.indexrelid) ~ '(status|lease_until|lease_owner|fence)'",
    )
    .fetch_all(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(touched, Vec::<String>::new());
    fixture.submit(inputs(200)).await;
    let claim = Claim::new("me", Duration::from_secs(60), 200);
    assert_eq!(
        queue().claim(&fixture.pool, &claim).await.unwrap().len(),
        200
    );
    let (updates, hot): (i64, i64) = within(DEADLINE, "the statistics are in", async || {
        sqlx::query("select pg_stat_force_next_flush()").execute(&fixture.pool).await.unwrap();
        let row: (i64, i64) = sqlx::query_as("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'export_job_input'")
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
        if row.0 >= 200 { Ok(row) } else { Err(row) }
    })
    .await;
    assert_eq!(updates, hot, "every claim is a HOT update");
}

#[tokio::test]
async fn finalizer_closes_jobs_that_the_fast_paths_missed() {
    let fixture = Fixture::new().await;
    let jobs = [
        fixture.submit(inputs(2)).await,
        fixture.submit(inputs(2)).await,
    ];
    fixture.execute("update exports.export_job_input set status = 'SUCCEEDED', finished_at = now(), s3_path = 'x' where job_id = (select job_id from exports.export_job where number = 1)").await;
    fixture.execute("update exports.export_job_input set status = 'DLQ', finished_at = now(), error_code = 'BROKEN', error_message = 'why', cause = 'BROKEN' where id = 3").await;
    fixture.finalize().await;
    assert_eq!(fixture.get(&jobs[0]).await["status"], "COMPLETED");
    let failed = fixture.get(&jobs[1]).await;
    assert_eq!(failed["status"], "FAILED");
    assert_eq!(
        failed["errorMessage"],
        "K00000 20240202 CLS moved to the DLQ: BROKEN: why"
    );
    fixture.finalize().await;
    assert_eq!(fixture.get(&jobs[1]).await, failed, "it is idempotent");
}

#[tokio::test]
async fn every_lifecycle_statement_can_be_prepared() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.pool.acquire().await.unwrap();
    for (name, text) in queue().statements() {
        let prepared = format!("prepare s_{name} as {text}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(prepared))
            .execute(&mut *connection)
            .await
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
