//! The same file requested again: concurrently (correction 10), and later, when the fast path reuses it.

use std::time::Duration;

use postrider::lease::{Claim, Queue};
use postrider_exports::EXPORT_JOB_INPUT;
use postrider_testkit::crash;
use serde_json::{Value, json};

use crate::support::{DEADLINE, Fixture, inputs, settings, within};

#[tokio::test]
async fn correction_10_two_jobs_over_the_same_thousand_keys_generate_each_file_once() {
    let fixture = Fixture::new().await;
    // Two workers with connections, breakers and memory of their own.
    fixture.start_worker(&settings(json!({})));
    fixture.start_worker(&settings(json!({})));
    let (first, second) = tokio::join!(fixture.submit(inputs(1000)), fixture.submit(inputs(1000)));
    let views = [
        fixture.wait_for_status(&first, "COMPLETED").await,
        fixture.wait_for_status(&second, "COMPLETED").await,
    ];
    let sum = |name: &str| {
        views
            .iter()
            .map(|view| view[name].as_i64().unwrap())
            .sum::<i64>()
    };
    assert_eq!(
        (sum("filesGenerated"), sum("filesReused")),
        (1000, 1000),
        "no file is generated twice"
    );
    for view in &views {
        for file in view["dataContent"].as_array().unwrap() {
            let path = file["s3Path"].as_str().unwrap();
            assert!(fixture.file(path).exists(), "{path} dangles");
        }
    }
    let registered: Vec<String> = sqlx::query_scalar("select s3_path from exports.export_artifact")
        .fetch_all(&fixture.pool)
        .await
        .unwrap();
    assert_eq!(registered.len(), 1000);
    assert!(registered.iter().all(|path| fixture.file(path).exists()));
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_generation")
            .await,
        0,
        "every file lock was released"
    );
}

#[tokio::test]
async fn correction_10_a_file_lock_expires_with_its_holders_lease() {
    let fixture = Fixture::new().await;
    fixture.submit(inputs(1)).await;
    let queue = Queue::new(&EXPORT_JOB_INPUT).unwrap();
    let claimed = queue
        .claim(
            &fixture.pool,
            &Claim::new("doomed", Duration::from_millis(300), 1),
        )
        .await
        .unwrap();
    // It took the file lock and died.
    let payload: Value = claimed[0].1.read().unwrap();
    sqlx::query("insert into exports.export_generation values ('K00000', 20240202, 'CLS', $1, $2)")
        .bind(claimed[0].1.id)
        .bind(payload["fence"].as_i64().unwrap())
        .execute(&fixture.pool)
        .await
        .unwrap();
    let second = fixture.submit(inputs(1)).await;
    fixture.start_worker(&settings(json!({})));
    fixture.wait_for_status(&second, "COMPLETED").await;
    within(DEADLINE, "both jobs are done", async || {
        fixture
            .count("select count(*) from exports.export_job where status = 'COMPLETED'")
            .await
            == 2
    })
    .await;
}

#[tokio::test]
async fn without_reuse_every_job_generates_its_files_and_the_latest_is_registered() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(
        json!({ "file": { "reuse": { "enabled": false } } }),
    ));
    let (first, second) = tokio::join!(fixture.submit(inputs(20)), fixture.submit(inputs(20)));
    for job in [&first, &second] {
        let view = fixture.wait_for_status(job, "COMPLETED").await;
        assert_eq!(view["filesGenerated"], 20);
        for file in view["dataContent"].as_array().unwrap() {
            assert!(file["s3Path"].as_str().unwrap().contains(job.as_str()));
        }
    }
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_artifact")
            .await,
        20
    );
}

/// A fixture in which the files of `inputs(20)` exist and no worker runs.
async fn with_files() -> Fixture {
    let fixture = Fixture::new().await;
    let stop = fixture.stop.child_token();
    let worker = fixture.start_worker_until(&settings(json!({})), stop.clone());
    let job = fixture.submit(inputs(20)).await;
    fixture.wait_for_status(&job, "COMPLETED").await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    fixture
}

#[tokio::test]
async fn inputs_with_existing_files_finish_without_being_claimed() {
    let fixture = with_files().await;
    fixture
        .execute(
            "create function refuse() returns trigger language plpgsql as $$ begin raise 'claimed'; end $$;
             create trigger refuse before update on exports.export_job_input for each row
                 when (new.status = 'RUNNING') execute function refuse()",
        )
        .await;
    let job = fixture.submit(inputs(20)).await;
    fixture.start_worker(&settings(json!({})));
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    assert_eq!(
        (&view["filesReused"], &view["filesGenerated"]),
        (&json!(20), &json!(0))
    );
}

#[tokio::test]
async fn fast_path_skips_inputs_claimed_meanwhile() {
    let fixture = with_files().await;
    let job = fixture.submit(inputs(20)).await;
    let trap = crash::at("exports.before_reuse").pause();
    fixture.start_worker(&settings(json!({})));
    trap.reached().await;
    let queue = Queue::new(&EXPORT_JOB_INPUT).unwrap();
    let claim = Claim::new("holder", Duration::from_secs(60), 3);
    let held = queue.claim(&fixture.pool, &claim).await.unwrap();
    assert_eq!(held.len(), 3);
    drop(trap);
    within(DEADLINE, "the others are finished", async || {
        let view = fixture.get(&job).await;
        view["filesReused"] == 17
    })
    .await;
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_job_input where lease_owner = 'holder' and status = 'RUNNING'")
            .await,
        3
    );
}

#[tokio::test]
async fn fast_path_skips_inputs_of_jobs_closed_meanwhile() {
    let fixture = with_files().await;
    let job = fixture.submit(inputs(20)).await;
    let trap = crash::at("exports.before_reuse").pause();
    let stop = fixture.stop.child_token();
    let worker = fixture.start_worker_until(&settings(json!({})), stop.clone());
    trap.reached().await;
    fixture.action(&job, "cancel").await;
    drop(trap);
    // Anything in flight is finished once another job has completed.
    let next = fixture.submit(inputs(20)).await;
    fixture.wait_for_status(&next, "COMPLETED").await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    let view = fixture.wait_for_status(&job, "CANCELLED").await;
    assert_eq!(view["filesReused"], 0, "{view}");
}
