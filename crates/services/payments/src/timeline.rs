//! What both sides know of a payment, for whoever follows one.

use postrider_inspect::timeline::{Event, ItemId, Timeline};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{OUTBOX, WALLET_OUTBOX};

const REQUEST: &str = "
select r.status, o.id from payments.request r left join payments.outbox o using (uuid) where r.uuid = $1";

/// Index: request_trace.
const OF_TRACE: &str = "
select uuid from payments.request where trace is not null and substr(trace, 4, 32) = $1 order by seq limit $2";

/// More payments than this of one trace are not followed.
const MOST: i64 = 50;

const REQUEST_EVENTS: &str = "
select e.* from payments.request r left join payments.outbox o using (uuid),
lateral (values
    (r.created_at, 'requested', r.amount || ' ' || r.currency || ' from ' || r.account_id, null::boolean),
    (o.finished_at, case o.status when 'PUBLISHED' then 'message published' else 'message given up' end, o.last_error_code,
     o.status = 'PUBLISHED'),
    (case when r.status <> 'PENDING' then r.updated_at end, 'settled: ' || r.status,
     concat_ws(', ', r.reason, 'by ' || r.settled_by), r.status = 'SUCCEED')) e(at, what, detail, good)
where r.uuid = $1 and e.at is not null order by e.at";

const WALLET: &str = "
select i.message_id, o.id from (select $1::uuid as uuid) w
left join wallet.inbox i using (uuid) left join wallet.outbox o using (uuid)";

const WALLET_EVENTS: &str = "
select i.received_at as at, 'the wallet took it in: ' || i.status as what, i.reason as detail, i.status = 'SUCCEED' as good
from wallet.inbox i where i.uuid = $1
union all
select f.failed_at, 'the wallet failed: ' || f.error_code, f.error, false from wallet.failure f where f.uuid = $1
union all
select o.created_at, 'call back owed: ' || o.outcome, o.last_error_code, null from wallet.outbox o where o.uuid = $1
order by 1";

/// The payment with this uuid, or those of the W3C trace with this id, which has the same form.
pub(crate) async fn trails(
    pool: &PgPool,
    wallet: &PgPool,
    id: Uuid,
) -> Result<Vec<Timeline>, sqlx::Error> {
    let mut trails = trail(pool, wallet, id).await?;
    let of_trace: Vec<Uuid> = sqlx::query_scalar(OF_TRACE)
        .bind(id.simple().to_string())
        .bind(MOST)
        .fetch_all(pool)
        .await?;
    for uuid in of_trace {
        trails.extend(trail(pool, wallet, uuid).await?);
    }
    Ok(trails)
}

async fn trail(pool: &PgPool, wallet: &PgPool, uuid: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
    let request: Option<(String, Option<i64>)> = sqlx::query_as(REQUEST)
        .bind(uuid)
        .fetch_optional(pool)
        .await?;
    let (message, owed): (Option<Uuid>, Option<i64>) =
        sqlx::query_as(WALLET).bind(uuid).fetch_one(wallet).await?;
    let Some(state) = request
        .as_ref()
        .map(|(status, _)| status.clone())
        .or_else(|| message.map(|_| "known to the wallet alone".into()))
    else {
        return Ok(Vec::new());
    };
    let mut events: Vec<Event> = sqlx::query_as(REQUEST_EVENTS)
        .bind(uuid)
        .fetch_all(pool)
        .await?;
    let told: Vec<Event> = sqlx::query_as(WALLET_EVENTS)
        .bind(uuid)
        .fetch_all(wallet)
        .await?;
    events.extend(told);
    let sent = request
        .and_then(|(_, id)| id)
        .map(|id| ItemId::new(OUTBOX.name, id));
    let owed = owed.map(|id| ItemId::new(WALLET_OUTBOX.name, id));
    Ok(vec![Timeline {
        kind: "payment",
        key: uuid.to_string(),
        state,
        events,
        items: sent.into_iter().chain(owed).collect(),
        messages: message.into_iter().collect(),
    }])
}
