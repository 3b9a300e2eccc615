//! A protocol's timeline, for the console and `postrider timeline`.

use postrider_inspect::timeline::{ItemId, Timeline};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{OUTBOX, store};

/// The protocol with this id; empty if there is none.
pub(crate) async fn timeline(pool: &PgPool, id: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
    let Some(state) = store::timeline_state(pool, id).await? else {
        return Ok(Vec::new());
    };
    let steps = store::timeline_steps(pool, id).await?;
    Ok(vec![Timeline {
        kind: "protocol",
        key: id.to_string(),
        state,
        events: store::timeline_events(pool, id, &steps).await?,
        items: steps
            .into_iter()
            .map(|id| ItemId::new(OUTBOX.name, id))
            .collect(),
        messages: Vec::new(),
    }])
}
