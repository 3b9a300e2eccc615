//! The built-in Case API, the default: accepts every file, without cases behind it.
//!
//! One artifact is attached once, however often it is sent. What is attached is recorded in the database, so that it
//! survives a crash of the program like the records of a real API.

use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use uuid::Uuid;

use super::{CaseApi, Content, Refusal, Upload};
use crate::model::Code;

const ATTACH: &str = "
insert into evidence.paper_evidence (artifact_id, case_id, file_name, sha256) values ($1, $2, $3, $4)
on conflict (artifact_id) do nothing";

const EXISTS: &str =
    "select exists (select from evidence.paper_evidence where artifact_id = $1 and case_id = $2)";

/// A Case API that accepts every file.
pub struct PaperCases {
    pool: PgPool,
}

impl PaperCases {
    /// A Case API that keeps its records in this database.
    #[must_use]
    pub const fn new(pool: PgPool) -> Self {
        Self { pool }
    }
}

impl CaseApi for PaperCases {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn attach(&self, upload: Upload) -> BoxFuture<'_, Result<(), Refusal>> {
        async move {
            let sha256 = digest(upload.content).await?;
            sqlx::query(ATTACH)
                .bind(upload.artifact_id)
                .bind(upload.case_id)
                .bind(upload.file_name)
                .bind(sha256)
                .execute(&self.pool)
                .await
                .map_err(unavailable)?;
            Ok(())
        }
        .boxed()
    }

    fn look_up(&self, case: Uuid, artifact: Uuid) -> BoxFuture<'_, Result<bool, Refusal>> {
        let exists = sqlx::query_scalar(EXISTS).bind(artifact).bind(case);
        async move { exists.fetch_one(&self.pool).await.map_err(unavailable) }.boxed()
    }
}

async fn digest(content: Content) -> Result<String, Refusal> {
    let mut hash = Sha256::new();
    match content {
        Content::Whole(bytes) => hash.update(&bytes),
        Content::Pieces(mut pieces) => {
            while let Some(piece) = pieces.next().await {
                hash.update(&piece.map_err(|e| Refusal::lost(Code::SystemError, e))?);
            }
        }
    }
    Ok(hex::encode(hash.finalize()))
}

/// Without its database the built-in API can't answer, like an API that can't be reached.
fn unavailable(error: sqlx::Error) -> Refusal {
    Refusal::lost(Code::NetworkTimeout, error)
}
