//! A file job's timeline, for the console and `postrider timeline`.

use postrider_inspect::timeline::{ItemId, Timeline};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{ATTACH_TASKS, store::timeline as store};

/// The job with this id, or with a row, an artifact or a notification of this id; empty if there is none.
pub(crate) async fn timeline(pool: &PgPool, id: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
    let Some(head) = store::head(pool, id).await? else {
        return Ok(Vec::new());
    };
    let (events, messages) = store::events(pool, &head).await?;
    let tasks = store::tasks(pool, &head).await?;
    Ok(vec![Timeline {
        kind: "file job",
        key: head.job.to_string(),
        state: head.state,
        events,
        items: tasks
            .into_iter()
            .map(|id| ItemId::new(ATTACH_TASKS.name, id))
            .collect(),
        messages,
    }])
}
