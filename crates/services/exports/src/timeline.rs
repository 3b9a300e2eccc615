//! A job's timeline, for the console and `postrider timeline`.

use postrider_inspect::timeline::{ItemId, Timeline};
use sqlx::PgPool;

use crate::{EXPORT_JOB_INPUT, store::timeline as store};

/// The job with this key or id, or with an input of this id; empty if there is none.
pub(crate) async fn timeline(pool: &PgPool, id: &str) -> Result<Vec<Timeline>, sqlx::Error> {
    let Some(head) = store::head(pool, id).await? else {
        return Ok(Vec::new());
    };
    let inputs = store::inputs(pool, &head).await?;
    Ok(vec![Timeline {
        kind: "export job",
        events: store::events(pool, &head, &inputs).await?,
        key: head.job_key,
        state: head.status,
        items: inputs
            .into_iter()
            .map(|id| ItemId::new(EXPORT_JOB_INPUT.name, id))
            .collect(),
        messages: Vec::new(),
    }])
}
