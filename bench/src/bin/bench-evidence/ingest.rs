//! A large archive through the API, with the peak of this process's memory beside what it was before.

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

const PIECE: usize = 256 << 10;

pub async fn run(pool: PgPool, store: Store, count: u64, bytes: usize) -> Result<()> {
    let file = crate::archive(count, 1, bytes)?;
    let evidence = Evidence::start(pool, store, &crate::settings()?)?;
    let (router, _) = postrider_evidence::routes::<Evidence>().split_for_parts();
    let router = with_middleware(router.with_state(evidence), MiddlewareOptions::default());
    let pieces = stream::unfold(file, |mut file| async move {
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece) {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some((Ok(Bytes::from(piece)), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    });
    let request = axum::http::Request::post("/file-jobs?merchant_id=m")
        .header("content-type", "application/zip")
        .body(Body::from_stream(pieces))?;
    crate::ready("one archive over HTTP")?;
    let before = memory("VmRSS");
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let begun = Instant::now();
    let answer = router.oneshot(request).await?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(answer.status() == 202, "answered {}", answer.status());
    let more = memory("VmHWM").saturating_sub(before) / 1024;
    crate::say(&json!({ "event": "done", "items": count, "seconds": seconds, "memory": more }))
}

/// In KiB: resident now, or the peak since it was last reset.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(what));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or_default()
}
