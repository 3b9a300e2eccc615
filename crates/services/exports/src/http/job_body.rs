//! A job as a streamed JSON body: a hundred thousand files are never in memory at once.

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{model::Progress, store};

/// Files per chunk.
const CHUNK_SIZE: i64 = 1_000;

/// What is written next.
enum Step {
    Head(Box<Progress>),
    Files { after: i64, first: bool },
    End,
}

/// A [`JobView`](crate::model::JobView) as JSON.
pub(super) fn job_body(pool: PgPool, job: Uuid, progress: Progress) -> Response {
    let chunks = stream::try_unfold(Step::Head(Box::new(progress)), move |step| {
        let pool = pool.clone();
        async move { next(&pool, job, step).await }
    });
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, Body::from_stream(chunks)).into_response()
}

async fn next(
    pool: &PgPool,
    job: Uuid,
    step: Step,
) -> Result<Option<(Bytes, Step)>, axum::BoxError> {
    match step {
        Step::Head(progress) => {
            let mut head = serde_json::to_string(&progress)?;
            // Drop the closing brace: the files follow.
            head.pop();
            head.push_str(",\"dataContent\":[");
            let files = Step::Files {
                after: 0,
                first: true,
            };
            Ok(Some((head.into(), files)))
        }
        Step::Files { after, mut first } => {
            let files = store::files(pool, job, after, CHUNK_SIZE).await?;
            let Some((last, _)) = files.last() else {
                return Ok(Some((Bytes::from_static(b"]}"), Step::End)));
            };
            let after = *last;
            let mut chunk = Vec::with_capacity(files.len() * 200);
            for (_, file) in &files {
                if !std::mem::take(&mut first) {
                    chunk.push(b',');
                }
                serde_json::to_writer(&mut chunk, file)?;
            }
            Ok(Some((chunk.into(), Step::Files { after, first })))
        }
        Step::End => Ok(None),
    }
}
