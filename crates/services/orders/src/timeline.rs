//! What is known of an order, for whoever follows one.

use postrider::timeline::{Event, ItemId, Trail};
use sqlx::PgPool;

use crate::OUTBOX_ORDERS;

const HEAD: &str = "
select l.key, coalesce(o.status, l.state), o.id from postrider.ledger l
left join orders.outbox_orders o on o.idempotency_key = l.key
where l.scope = 'orders' and l.key = $1";

const EVENTS: &str = "
select e.* from postrider.ledger l
left join orders.outbox_orders o on o.idempotency_key = l.key,
lateral (values
    (l.created_at, 'accepted', o.order_request_json ->> 'symbol', null::boolean),
    (o.sent_at, 'handed to the broker', null, null),
    (l.finished_at, case l.state when 'succeeded' then 'the broker has it' else 'aborted' end, l.result::text,
     l.state = 'succeeded')) e(at, what, detail, good)
where l.scope = 'orders' and l.key = $1 and e.at is not null order by e.at";

/// The order under this key.
pub(crate) async fn trail(pool: &PgPool, key: &str) -> Result<Vec<Trail>, sqlx::Error> {
    let head: Option<(String, String, Option<i64>)> =
        sqlx::query_as(HEAD).bind(key).fetch_optional(pool).await?;
    let Some((key, state, id)) = head else {
        return Ok(Vec::new());
    };
    let events: Vec<Event> = sqlx::query_as(EVENTS).bind(&key).fetch_all(pool).await?;
    Ok(vec![Trail {
        kind: "order",
        key,
        state,
        events,
        items: id
            .map(|id| ItemId::new(OUTBOX_ORDERS.name, id))
            .into_iter()
            .collect(),
        messages: Vec::new(),
    }])
}
