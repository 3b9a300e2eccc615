//! What is known of a protocol, for whoever follows one.

use postrider_inspect::timeline::{Event, ItemId, Timeline};
use sqlx::PgPool;
use uuid::Uuid;

use crate::OUTBOX;

const HEAD: &str = "select p.status from protocols.protocol p where p.id = $1";

const STEPS: &str =
    "select o.id from protocols.outbox o where o.protocol_id = $1 order by o.id desc limit 100";

const EVENTS: &str = "
select * from (
    select p.created_at as at, 'uploaded' as what, p.title as detail, null::boolean as good
    from protocols.protocol p where p.id = $1
    union all
    select p.updated_at, p.status, p.error_reason, case when p.error_reason is not null then false end
    from protocols.protocol p where p.id = $1 and p.updated_at > p.created_at
    union all
    select e.* from protocols.outbox o,
    lateral (values
        (o.created_at, lower(o.event_type) || ' of try ' || o.try, null, null::boolean),
        (o.finished_at, lower(o.event_type) || case o.status when 'published' then ' done' else ' given up' end, o.error_code,
         o.status = 'published')) e(at, what, detail, good)
    where o.id = any($2)) e
where e.at is not null order by e.at";

/// The protocol with this id.
pub(crate) async fn trail(pool: &PgPool, id: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
    let state: Option<String> = sqlx::query_scalar(HEAD)
        .bind(id)
        .fetch_optional(pool)
        .await?;
    let Some(state) = state else {
        return Ok(Vec::new());
    };
    let steps: Vec<i64> = sqlx::query_scalar(STEPS).bind(id).fetch_all(pool).await?;
    let events: Vec<Event> = sqlx::query_as(EVENTS)
        .bind(id)
        .bind(&steps)
        .fetch_all(pool)
        .await?;
    Ok(vec![Timeline {
        kind: "protocol",
        key: id.to_string(),
        state,
        events,
        items: steps
            .into_iter()
            .map(|id| ItemId::new(OUTBOX.name, id))
            .collect(),
        messages: Vec::new(),
    }])
}
