//! The same file asked for again: at once (correction 10), and later, when it is reused ahead of the claims.

use std::time::Duration;

use postrider::lease::{Claim, Queue};
use postrider_exports::EXPORT_JOB_INPUT;
use postrider_testkit::crash;
use serde_json::{Value, json};

use crate::support::{House, LONG, many, settings, within};

#[tokio::test]
async fn correction_10_two_jobs_over_the_same_thousand_keys_generate_each_file_once() {
    let house = House::new().await;
    // Two workers with connections, breakers and memory of their own.
    house.work(&settings(json!({})));
    house.work(&settings(json!({})));
    let (first, second) = tokio::join!(house.submit(many(1000)), house.submit(many(1000)));
    let views = [
        house.stands(&first, "COMPLETED").await,
        house.stands(&second, "COMPLETED").await,
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
        "no needless second generation"
    );
    for view in &views {
        for file in view["dataContent"].as_array().unwrap() {
            let path = file["s3Path"].as_str().unwrap();
            assert!(house.file(path).exists(), "{path} dangles");
        }
    }
    let registered: Vec<String> = sqlx::query_scalar("select s3_path from exports.export_artifact")
        .fetch_all(&house.pool)
        .await
        .unwrap();
    assert_eq!(registered.len(), 1000);
    assert!(registered.iter().all(|path| house.file(path).exists()));
    assert_eq!(
        house
            .count("select count(*) from exports.export_generation")
            .await,
        0,
        "every right was given back"
    );
}

#[tokio::test]
async fn correction_10_the_right_to_make_a_file_ends_with_the_lease_of_its_holder() {
    let house = House::new().await;
    house.submit(many(1)).await;
    let queue = Queue::new(&EXPORT_JOB_INPUT).unwrap();
    let claimed = queue
        .claim(
            &house.pool,
            &Claim::new("doomed", Duration::from_millis(300), 1),
        )
        .await
        .unwrap();
    // It took the right, and died.
    let payload: Value = claimed[0].1.read().unwrap();
    sqlx::query("insert into exports.export_generation values ('K00000', 20240202, 'CLS', $1, $2)")
        .bind(claimed[0].1.id)
        .bind(payload["fence"].as_i64().unwrap())
        .execute(&house.pool)
        .await
        .unwrap();
    let second = house.submit(many(1)).await;
    house.work(&settings(json!({})));
    house.stands(&second, "COMPLETED").await;
    within(LONG, "both jobs are done", async || {
        house
            .count("select count(*) from exports.export_job where status = 'COMPLETED'")
            .await
            == 2
    })
    .await;
}

#[tokio::test]
async fn without_reuse_every_job_makes_its_own_files_and_the_registry_has_the_last() {
    let house = House::new().await;
    house.work(&settings(
        json!({ "file": { "reuse": { "enabled": false } } }),
    ));
    let (first, second) = tokio::join!(house.submit(many(20)), house.submit(many(20)));
    for job in [&first, &second] {
        let view = house.stands(job, "COMPLETED").await;
        assert_eq!(view["filesGenerated"], 20);
        for file in view["dataContent"].as_array().unwrap() {
            assert!(file["s3Path"].as_str().unwrap().contains(job.as_str()));
        }
    }
    assert_eq!(
        house
            .count("select count(*) from exports.export_artifact")
            .await,
        20
    );
}

/// A house in which the files of `many(20)` are there, and nobody works any more.
async fn with_files() -> House {
    let house = House::new().await;
    let stop = house.stop.child_token();
    let worker = house.work_until(&settings(json!({})), stop.clone());
    let job = house.submit(many(20)).await;
    house.stands(&job, "COMPLETED").await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    house
}

#[tokio::test]
async fn inputs_whose_files_are_there_are_finished_without_being_claimed() {
    let house = with_files().await;
    house
        .execute(
            "create function refuse() returns trigger language plpgsql as $$ begin raise 'claimed'; end $$;
             create trigger refuse before update on exports.export_job_input for each row
                 when (new.status = 'RUNNING') execute function refuse()",
        )
        .await;
    let job = house.submit(many(20)).await;
    house.work(&settings(json!({})));
    let view = house.stands(&job, "COMPLETED").await;
    assert_eq!(
        (&view["filesReused"], &view["filesGenerated"]),
        (&json!(20), &json!(0))
    );
}

#[tokio::test]
async fn an_input_that_was_claimed_meanwhile_is_left_to_its_holder() {
    let house = with_files().await;
    let job = house.submit(many(20)).await;
    let trap = crash::at("exports.before_reuse").pause();
    house.work(&settings(json!({})));
    trap.reached().await;
    let queue = Queue::new(&EXPORT_JOB_INPUT).unwrap();
    let claim = Claim::new("holder", Duration::from_secs(60), 3);
    let held = queue.claim(&house.pool, &claim).await.unwrap();
    assert_eq!(held.len(), 3);
    drop(trap);
    within(LONG, "the others are finished", async || {
        let view = house.get(&job).await;
        view["filesReused"] == 17
    })
    .await;
    assert_eq!(
        house
            .count("select count(*) from exports.export_job_input where lease_owner = 'holder' and status = 'RUNNING'")
            .await,
        3
    );
}

#[tokio::test]
async fn the_inputs_of_a_job_that_is_closed_meanwhile_stay_as_they_are() {
    let house = with_files().await;
    let job = house.submit(many(20)).await;
    let trap = crash::at("exports.before_reuse").pause();
    let stop = house.stop.child_token();
    let worker = house.work_until(&settings(json!({})), stop.clone());
    trap.reached().await;
    house.operate(&job, "cancel").await;
    drop(trap);
    // Whatever was under way is over when another job has been through.
    let next = house.submit(many(20)).await;
    house.stands(&next, "COMPLETED").await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    let view = house.stands(&job, "CANCELLED").await;
    assert_eq!(view["filesReused"], 0, "{view}");
}
