//! Accepts jobs: a ZIP with a manifest, or JSON that names objects of the store.
//!
//! The promise: a job is accepted completely or not at all. Everything about an archive is checked before its first file
//! is stored. What shows only while unpacking (a corrupted entry, a wrong size) removes the files stored so far. Memory
//! stays bounded: an archive is a temporary file, and its entries are streamed in chunks.

mod archive;
mod body;
mod directory;
mod manifest;
mod unpack;

use std::fs::File;

use futures_util::{StreamExt, TryStreamExt, stream};
use postrider::{outbox::OUTBOX, wake::Waker};
use postrider_blob::{Key, Store};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

pub(crate) use body::receive;

use crate::{
    EvidenceError, Settings, files,
    model::{JobRequest, MaxLength, NewFile, NewRow, Submission, check_text},
    settings::Ingest as Limits,
    store::submit,
};

/// Prefix of the keys of uploaded files; the job's id follows.
pub const PREFIX: &str = "evidence";

const MAX_CONCURRENT_READS: usize = 16;

/// The response to an accepted job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FileJobAccepted)]
pub struct Accepted {
    /// The job.
    pub file_job_id: Uuid,
    /// Number of rows.
    pub rows: usize,
    /// Number of artifacts.
    pub artifacts: usize,
}

/// Accepts jobs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Intake {
    pool: PgPool,
    store: Store,
    pub(crate) limits: Limits,
    max_retries: i32,
    waker: Waker,
}

impl Intake {
    /// An intake with these limits. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(pool: PgPool, store: Store, settings: &Settings) -> Self {
        Self {
            waker: Waker::new(pool.clone()),
            pool,
            store,
            limits: settings.ingest,
            max_retries: settings.max_retries(),
        }
    }

    /// Accepts a job whose files are in the store.
    pub async fn json(&self, request: JobRequest) -> Result<Accepted, EvidenceError> {
        let key_of = |text: &str| {
            let inside = self.store.key_from_url(text);
            let key = inside.or_else(|| {
                let relative = !text.contains("://");
                relative.then(|| Key::parse(text).ok()).flatten()
            });
            key.map(|key| key.to_string()).filter(|key| !key.is_empty())
        };
        let mut submission = Submission::from_request(request, key_of)?;
        self.read_sizes(&mut submission).await?;
        self.insert(Uuid::now_v7(), &submission).await
    }

    /// Accepts a job from an archive.
    pub async fn zip(&self, merchant_id: String, file: File) -> Result<Accepted, EvidenceError> {
        check_text("merchant_id", &merchant_id, MaxLength::Name)?;
        let limits = self.limits;
        let checked = tokio::task::spawn_blocking(move || archive::check(file, &limits))
            .await
            .map_err(EvidenceError::internal)??;
        // In a task of its own: a dropped future would leave files behind.
        let intake = self.clone();
        tokio::spawn(async move { intake.store_archive(merchant_id, checked).await })
            .await
            .map_err(EvidenceError::internal)?
    }

    async fn store_archive(
        self,
        merchant_id: String,
        checked: archive::CheckedArchive,
    ) -> Result<Accepted, EvidenceError> {
        let job = Uuid::now_v7();
        let (listed, unpacking) = checked.into_parts();
        let mut written = Vec::new();
        let result = async {
            let stored = unpack::unpack(&self.store, job, unpacking, &mut written).await?;
            postrider_crashpoint::point!("evidence.files_stored")
                .map_err(postrider::Error::from)?;
            let row = |row: manifest::Row| NewRow {
                case_id: row.case_id,
                reference: row.reference,
                files: row
                    .files
                    .into_iter()
                    .map(|name| {
                        let file = &stored[&name];
                        NewFile {
                            file_type: crate::model::media_type(&name),
                            file_name: name,
                            s3_key: file.key.to_string(),
                            size: Some(file.size),
                            sha256: Some(file.sha256.clone()),
                        }
                    })
                    .collect(),
            };
            let submission = Submission {
                merchant_id,
                source: "zip",
                rows: listed.into_iter().map(row).collect(),
            };
            self.insert(job, &submission).await
        }
        .await;
        // A commit whose response was lost may have happened: the sweep decides by the job whether to keep its files.
        if matches!(&result, Err(error) if !error.may_be_stored()) {
            for key in &written {
                if let Err(error) = self.store.delete(key).await {
                    tracing::warn!(%error, %key, "a rejected job's file can't be deleted now; the sweep deletes it");
                }
            }
        }
        result
    }

    /// Reads the sizes of objects in the store. A missing one is reported by the worker.
    async fn read_sizes(&self, submission: &mut Submission) -> Result<(), EvidenceError> {
        let files = submission.rows.iter().flat_map(|row| &row.files);
        let keys: Vec<Key> = files.map(|file| files::key(&file.s3_key)).collect();
        let heads = keys.into_iter().map(|key| {
            let store = self.store.clone();
            async move { store.head(&key).await }
        });
        let found: Vec<_> = stream::iter(heads)
            .buffered(MAX_CONCURRENT_READS)
            .try_collect()
            .await?;
        let files = submission.rows.iter_mut().flat_map(|row| &mut row.files);
        for (file, meta) in files.zip(found) {
            file.size = meta.map(|meta| meta.size);
        }
        Ok(())
    }

    async fn insert(&self, job: Uuid, submission: &Submission) -> Result<Accepted, EvidenceError> {
        submit::insert(&self.pool, &self.store, job, submission, self.max_retries).await?;
        self.waker.wake(&OUTBOX);
        let (rows, artifacts) = (submission.rows.len(), submission.artifacts());
        tracing::info!(%job, merchant = submission.merchant_id, rows, artifacts, "file job accepted");
        Ok(Accepted {
            file_job_id: job,
            rows,
            artifacts,
        })
    }
}
