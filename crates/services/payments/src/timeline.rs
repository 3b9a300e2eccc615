//! A payment's timeline, joined from both sides, for the console and `postrider timeline`.

use postrider_inspect::timeline::{ItemId, Timeline};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{OUTBOX, WALLET_OUTBOX, requests, wallet};

/// Maximum number of payments of one trace.
const MAX_PAYMENTS: i64 = 50;

/// The payment with this uuid, or the payments of the W3C trace with this id, which has the same form.
pub(crate) async fn timelines(
    pool: &PgPool,
    wallet: &PgPool,
    id: Uuid,
) -> Result<Vec<Timeline>, sqlx::Error> {
    let mut timelines: Vec<Timeline> = timeline(pool, wallet, id).await?.into_iter().collect();
    for uuid in requests::store::by_trace(pool, id, MAX_PAYMENTS).await? {
        timelines.extend(timeline(pool, wallet, uuid).await?);
    }
    Ok(timelines)
}

async fn timeline(
    pool: &PgPool,
    wallet: &PgPool,
    uuid: Uuid,
) -> Result<Option<Timeline>, sqlx::Error> {
    let request = requests::store::timeline_head(pool, uuid).await?;
    let (message, callback) = wallet::store::timeline_head(wallet, uuid).await?;
    let (state, outbox) = match (request, message) {
        (Some((status, outbox)), _) => (status, outbox),
        (None, Some(_)) => ("known to the wallet only".to_owned(), None),
        (None, None) => return Ok(None),
    };
    let mut events = requests::store::timeline_events(pool, uuid).await?;
    events.extend(wallet::store::timeline_events(wallet, uuid).await?);
    let outbox = outbox.map(|id| ItemId::new(OUTBOX.name, id));
    let callback = callback.map(|id| ItemId::new(WALLET_OUTBOX.name, id));
    Ok(Some(Timeline {
        kind: "payment",
        key: uuid.to_string(),
        state,
        events,
        items: outbox.into_iter().chain(callback).collect(),
        messages: message.into_iter().collect(),
    }))
}
