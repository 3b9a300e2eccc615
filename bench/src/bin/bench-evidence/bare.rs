//! The bare loops: the same calls, and nothing else.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_blob::{Key, Store};
use postrider_evidence::cases::{CaseApi, Content, Upload};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{CONCURRENT_CALLS, Setup};

/// A call contains a file and its SHA-256, so each file is read from the store and hashed. With `in_memory`, the same
/// bytes from memory are sent every time.
pub async fn run(setup: &Setup, job: Uuid, in_memory: Option<usize>) -> Result<()> {
    let keys = "select s3_key from evidence.file_job_artifact where file_job_id = $1";
    let keys: Vec<String> = sqlx::query_scalar(keys)
        .bind(job)
        .fetch_all(&setup.pool)
        .await?;
    let ready = in_memory.map(|size| hashed(Bytes::from(vec![7; size])));
    stream::iter(keys)
        .map(anyhow::Ok)
        .try_for_each_concurrent(CONCURRENT_CALLS, |key| {
            let (store, cases) = (setup.store.clone(), Arc::clone(&setup.cases));
            let call = call(store, cases, key, ready.clone());
            async { tokio::spawn(call).await? }
        })
        .await
}

fn hashed(content: Bytes) -> (String, Bytes) {
    (hex::encode(Sha256::digest(&content)), content)
}

async fn call(
    store: Store,
    cases: Arc<dyn CaseApi>,
    key: String,
    ready: Option<(String, Bytes)>,
) -> Result<()> {
    let (sha256, content) = match ready {
        Some(ready) => ready,
        None => {
            let found = store.get(&Key::from(key.as_str())).await?;
            hashed(found.bytes().await?)
        }
    };
    let upload = Upload {
        case_id: Uuid::nil(),
        artifact_id: Uuid::new_v4(),
        file_name: "f.pdf".to_owned(),
        file_type: Some("application/pdf".to_owned()),
        sha256,
        size: content.len() as u64,
        content: Content::Whole(content),
    };
    let attached = cases.attach(upload).await;
    attached.ok().context("the Case API rejected a file")
}
