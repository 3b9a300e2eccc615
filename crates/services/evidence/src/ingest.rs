//! Takes jobs in: a ZIP with a manifest, or JSON that names objects of the store.
//!
//! The promise: a job is taken whole or not at all. Everything about an archive is checked before its first file is
//! stored; what only shows while it is unpacked (a damaged entry, one that lies about its size) takes the files stored
//! so far with it. Memory stays bounded whatever arrives: an archive lies in a temporary file, and its entries pass
//! through in pieces.

mod archive;
mod body;
mod directory;
mod manifest;
mod refused;
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
pub use refused::Refused;

use crate::{
    Settings, files,
    model::{JobRequest, NewFile, NewRow, Submission, Width, check_text},
    settings::Ingest as Limits,
    store::submit,
};

/// Where files of archives go in the store; the job's id follows.
pub const PREFIX: &str = "evidence";

/// The answer to a job that was taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FileJobAccepted)]
pub struct Accepted {
    /// The job.
    pub file_job_id: Uuid,
    /// How many rows it has.
    pub rows: usize,
    /// How many artifacts.
    pub artifacts: usize,
}

/// Takes jobs in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Intake {
    pool: PgPool,
    store: Store,
    pub(crate) limits: Limits,
    max_retries: i32,
    waker: Waker,
}

impl Intake {
    /// With these limits. Call it inside a tokio runtime.
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

    /// Files that are in the store already.
    pub async fn json(&self, request: JobRequest) -> Result<Accepted, Refused> {
        let key_of = |text: &str| {
            let inside = self.store.key_from_url(text);
            let key = inside.or_else(|| {
                let relative = !text.contains("://");
                relative.then(|| Key::parse(text).ok()).flatten()
            });
            key.map(|key| key.to_string()).filter(|key| !key.is_empty())
        };
        let mut submission = Submission::of_request(request, key_of)?;
        self.measure(&mut submission).await?;
        self.insert(Uuid::now_v7(), &submission).await
    }

    /// An archive in a file.
    pub async fn zip(&self, merchant_id: String, file: File) -> Result<Accepted, Refused> {
        check_text("merchant_id", &merchant_id, Width::Name)?;
        let limits = self.limits;
        let checked = tokio::task::spawn_blocking(move || archive::check(file, &limits))
            .await
            .map_err(Refused::broken)??;
        // Not in this future: one that is dropped half-way would leave files behind.
        let intake = self.clone();
        tokio::spawn(async move { intake.store_archive(merchant_id, checked).await })
            .await
            .map_err(Refused::broken)?
    }

    async fn store_archive(
        self,
        merchant_id: String,
        checked: archive::Checked,
    ) -> Result<Accepted, Refused> {
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
                            file_type: crate::model::guess(&name),
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
        // A commit whose answer was lost may have happened: the sweep decides about those files, later and by the job.
        if matches!(&result, Err(refused) if !refused.may_be_stored()) {
            for key in &written {
                if let Err(error) = self.store.delete(key).await {
                    tracing::warn!(%error, %key, "a refused job's file can't be removed now; the sweep will");
                }
            }
        }
        result
    }

    /// The sizes of objects that somebody else has put into the store; one that is not there is the worker's to find.
    async fn measure(&self, submission: &mut Submission) -> Result<(), Refused> {
        const AT_ONCE: usize = 16;
        let files = submission.rows.iter().flat_map(|row| &row.files);
        let keys: Vec<Key> = files.map(|file| files::key(&file.s3_key)).collect();
        let heads = keys.into_iter().map(|key| {
            let store = self.store.clone();
            async move { store.head(&key).await }
        });
        let found: Vec<_> = stream::iter(heads).buffered(AT_ONCE).try_collect().await?;
        let files = submission.rows.iter_mut().flat_map(|row| &mut row.files);
        for (file, meta) in files.zip(found) {
            file.size = meta.map(|meta| meta.size);
        }
        Ok(())
    }

    async fn insert(&self, job: Uuid, submission: &Submission) -> Result<Accepted, Refused> {
        submit::insert(&self.pool, &self.store, job, submission, self.max_retries).await?;
        self.waker.wake(&OUTBOX);
        let (rows, artifacts) = (submission.rows.len(), submission.artifacts());
        tracing::info!(%job, merchant = submission.merchant_id, rows, artifacts, "a file job is taken in");
        Ok(Accepted {
            file_job_id: job,
            rows,
            artifacts,
        })
    }
}
