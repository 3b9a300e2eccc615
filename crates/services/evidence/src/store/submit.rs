//! Stores a job: its rows, its artifacts and the first event of each row, all or nothing.

use postrider::{Error, outbox};
use postrider_blob::Store;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    events::{AttachEvent, AttachType, EventArtifact, SCHEMA_VERSION},
    model::Submission,
};

/// Artifacts per statement; larger ones gain nothing.
const CHUNK_SIZE: usize = 5_000;

const INSERT_JOB: &str = "
insert into evidence.file_job (id, merchant_id, source, row_count, artifact_count) values ($1, $2, $3, $4, $5)";

const INSERT_ROWS: &str = "
insert into evidence.file_job_row (id, file_job_id, row_number, case_id, reference, evidence_count)
select u.id, $1, u.number, u.case_id, u.reference, u.files
from unnest($2::uuid[], $3::integer[], $4::uuid[], $5::text[], $6::integer[]) u(id, number, case_id, reference, files)";

const INSERT_ARTIFACTS: &str = "
insert into evidence.file_job_artifact
    (id, file_job_id, file_job_row_id, case_id, artifact_number, file_name, file_type, file_size_bytes, sha256, s3_key, max_retries)
select u.id, $1, u.row_id, u.case_id, u.number, u.name, u.type, u.size, u.sha256, u.key, $2
from unnest($3::uuid[], $4::uuid[], $5::uuid[], $6::integer[], $7::text[], $8::text[], $9::bigint[], $10::text[], $11::text[])
     u(id, row_id, case_id, number, name, type, size, sha256, key)";

const EXISTING: &str = "select id from evidence.file_job where id = any($1)";

#[derive(Default)]
struct ArtifactColumns<'a> {
    ids: Vec<Uuid>,
    rows: Vec<Uuid>,
    cases: Vec<Uuid>,
    numbers: Vec<i32>,
    names: Vec<&'a str>,
    types: Vec<Option<&'a str>>,
    sizes: Vec<Option<i64>>,
    digests: Vec<Option<&'a str>>,
    keys: Vec<&'a str>,
}

/// Stores the job in one transaction.
pub(crate) async fn insert(
    pool: &PgPool,
    files: &Store,
    job: Uuid,
    submission: &Submission,
    max_retries: i32,
) -> Result<(), Error> {
    let mut tx = pool.begin().await?;
    sqlx::query(INSERT_JOB)
        .bind(job)
        .bind(&submission.merchant_id)
        .bind(submission.source)
        .bind(count(submission.rows.len()))
        .bind(count(submission.artifacts()))
        .execute(&mut *tx)
        .await?;
    let row_ids: Vec<Uuid> = submission.rows.iter().map(|_| Uuid::now_v7()).collect();
    let rows = &submission.rows;
    sqlx::query(INSERT_ROWS)
        .bind(job)
        .bind(&row_ids)
        .bind((1..=count(rows.len())).collect::<Vec<i32>>())
        .bind(rows.iter().map(|row| row.case_id).collect::<Vec<_>>())
        .bind(
            rows.iter()
                .map(|row| row.reference.as_deref())
                .collect::<Vec<_>>(),
        )
        .bind(
            rows.iter()
                .map(|row| count(row.files.len()))
                .collect::<Vec<_>>(),
        )
        .execute(&mut *tx)
        .await?;
    let now = OffsetDateTime::now_utc();
    let mut events = Vec::with_capacity(rows.len());
    let mut pending = ArtifactColumns::default();
    for (row, row_id) in rows.iter().zip(row_ids) {
        let mut event_artifacts = Vec::with_capacity(row.files.len());
        for (number, file) in (1..).zip(&row.files) {
            let id = Uuid::now_v7();
            event_artifacts.push(EventArtifact {
                artifact_id: id,
                s3_key: files.url(&crate::files::key(&file.s3_key)),
            });
            pending.ids.push(id);
            pending.rows.push(row_id);
            pending.cases.push(row.case_id);
            pending.numbers.push(number);
            pending.names.push(&file.file_name);
            pending.types.push(file.file_type.as_deref());
            pending
                .sizes
                .push(file.size.and_then(|size| i64::try_from(size).ok()));
            pending.digests.push(file.sha256.as_deref());
            pending.keys.push(&file.s3_key);
        }
        let event = AttachEvent {
            event_id: Uuid::now_v7(),
            event_type: AttachType::Initial,
            occurred_at: now,
            file_job_id: job,
            file_job_row_id: row_id,
            case_id: row.case_id,
            artifacts: event_artifacts,
            retry_reason: None,
            schema_version: SCHEMA_VERSION,
        };
        events.push(event.message()?);
        if pending.ids.len() >= CHUNK_SIZE {
            insert_artifacts(&mut tx, job, max_retries, &pending).await?;
            pending = ArtifactColumns::default();
        }
    }
    insert_artifacts(&mut tx, job, max_retries, &pending).await?;
    outbox::enqueue_many(&mut tx, &events).await?;
    postrider_crashpoint::point!("evidence.submit_before_commit")?;
    tx.commit().await?;
    Ok(())
}

async fn insert_artifacts(
    tx: &mut sqlx::PgConnection,
    job: Uuid,
    max_retries: i32,
    artifacts: &ArtifactColumns<'_>,
) -> Result<(), sqlx::Error> {
    if artifacts.ids.is_empty() {
        return Ok(());
    }
    sqlx::query(INSERT_ARTIFACTS)
        .bind(job)
        .bind(max_retries)
        .bind(&artifacts.ids)
        .bind(&artifacts.rows)
        .bind(&artifacts.cases)
        .bind(&artifacts.numbers)
        .bind(&artifacts.names)
        .bind(&artifacts.types)
        .bind(&artifacts.sizes)
        .bind(&artifacts.digests)
        .bind(&artifacts.keys)
        .execute(tx)
        .await
        .map(drop)
}

/// Those of these jobs that exist.
pub(crate) async fn existing(pool: &PgPool, jobs: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(EXISTING)
        .bind(jobs)
        .fetch_all(pool)
        .await
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
