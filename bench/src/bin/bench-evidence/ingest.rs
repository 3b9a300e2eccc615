//! Uploads a large archive through the API, and measures the additional memory of this process.

use std::io::Read;
use std::time::Instant;

use anyhow::{Result, ensure};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use postrider_blob::Store;
use postrider_evidence::Evidence;
use postrider_web::{MiddlewareOptions, with_middleware};
use serde_json::json;
use sqlx::PgPool;
use tower::ServiceExt;

const CHUNK_BYTES: usize = 256 << 10;

pub async fn run(pool: PgPool, store: Store, count: u64, bytes: usize) -> Result<()> {
    let file = crate::archive(count, 1, bytes)?;
    let evidence = Evidence::start(pool, store, &crate::settings()?)?;
    let (router, _) = postrider_evidence::routes::<Evidence>().split_for_parts();
    let router = with_middleware(router.with_state(evidence), MiddlewareOptions::default());
    let chunks = stream::unfold(file, |mut file| async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        match file.read(&mut chunk) {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                Some((Ok(Bytes::from(chunk)), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    });
    let request = axum::http::Request::post("/file-jobs?merchant_id=m")
        .header("content-type", "application/zip")
        .body(Body::from_stream(chunks))?;
    crate::ready("one archive over HTTP")?;
    let before = memory("VmRSS");
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let begun = Instant::now();
    let answer = router.oneshot(request).await?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(answer.status() == 202, "answered {}", answer.status());
    let additional = memory("VmHWM").saturating_sub(before) / 1024;
    crate::write_event(
        &json!({ "event": "done", "items": count, "seconds": seconds, "memory": additional }),
    )
}

/// Memory in KiB: resident now, or the peak since the last reset.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or_default()
}
