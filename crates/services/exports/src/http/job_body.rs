//! A job's answer, written piece by piece: a hundred thousand files are never in memory at once.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use postrider_blob::{Fault, fault};
use postrider_web::Problem;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    codes::{EXPORT_FILE_GONE, EXPORT_FILE_NOT_FOUND, EXPORT_STORE_UNAVAILABLE},
    model::Progress,
    store,
};

/// When to ask a store again that was away.
const PAUSE: Duration = Duration::from_secs(10);

/// Files per piece.
const PIECE: i64 = 1_000;

/// Where the writing stands.
enum Step {
    Head(Box<Progress>),
    Files { after: i64, first: bool },
    End,
}

/// A [`JobView`](crate::model::JobView) as JSON.
pub(super) fn job(pool: PgPool, job: Uuid, progress: Progress) -> Response {
    let pieces = stream::try_unfold(Step::Head(Box::new(progress)), move |step| {
        let pool = pool.clone();
        async move { next(&pool, job, step).await }
    });
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (headers, Body::from_stream(pieces)).into_response()
}

async fn next(
    pool: &PgPool,
    job: Uuid,
    step: Step,
) -> Result<Option<(Bytes, Step)>, axum::BoxError> {
    match step {
        Step::Head(progress) => {
            let mut head = serde_json::to_string(&progress)?;
            // The object goes on where it would have ended.
            head.pop();
            head.push_str(",\"dataContent\":[");
            let files = Step::Files {
                after: 0,
                first: true,
            };
            Ok(Some((head.into(), files)))
        }
        Step::Files { after, mut first } => {
            let files = store::files(pool, job, after, PIECE).await?;
            let Some((last, _)) = files.last() else {
                return Ok(Some((Bytes::from_static(b"]}"), Step::End)));
            };
            let after = *last;
            let mut piece = Vec::with_capacity(files.len() * 200);
            for (_, file) in &files {
                if !std::mem::take(&mut first) {
                    piece.push(b',');
                }
                serde_json::to_writer(&mut piece, file)?;
            }
            Ok(Some((piece.into(), Step::Files { after, first })))
        }
        Step::End => Ok(None),
    }
}

/// The job has no such file.
pub(super) fn no_file() -> Problem {
    Problem::new(
        &EXPORT_FILE_NOT_FOUND,
        "The job has no finished input of this key; its inputs are at /jobs/{jobId}/inputs.",
    )
}

/// Why a file that is known can't be read.
pub(super) fn unread(error: postrider_blob::Error) -> Problem {
    match fault(&error) {
        Fault::NotThere => Problem::new(
            &EXPORT_FILE_GONE,
            "The file was made, and removed from the store since: submit this input again, and the new job makes it anew.",
        )
        .caused_by(error),
        Fault::Away => Problem::new(
            &EXPORT_STORE_UNAVAILABLE,
            "The store does not answer: try again later.",
        )
        .retry_after(PAUSE)
        .caused_by(error),
        Fault::Refused | Fault::Other => Problem::internal(error),
    }
}
