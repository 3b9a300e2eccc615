//! An order's timeline, for the console and `postrider timeline`.

use postrider_inspect::timeline::{ItemId, Timeline};
use sqlx::PgPool;

use crate::{OUTBOX_ORDERS, store};

/// The order under this key; empty if there is none.
pub(crate) async fn timeline(pool: &PgPool, key: &str) -> Result<Vec<Timeline>, sqlx::Error> {
    let Some((state, id)) = store::timeline_head(pool, key).await? else {
        return Ok(Vec::new());
    };
    Ok(vec![Timeline {
        kind: "order",
        key: key.to_owned(),
        state,
        events: store::timeline_events(pool, key).await?,
        items: id
            .map(|id| ItemId::new(OUTBOX_ORDERS.name, id))
            .into_iter()
            .collect(),
        messages: Vec::new(),
    }])
}
