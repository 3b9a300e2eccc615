//! Timelines of messages: accepted, published, delivered, consumed.

use std::collections::BTreeMap;

use postrider::outbox::OUTBOX;
use postrider::transport::{DELIVERIES, MessageId, Origin};
use postrider::{Error, Result};
use sqlx::types::time::OffsetDateTime;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Event, ItemId, Timeline};

/// Maximum number of messages of one object.
const MAX_MESSAGES: usize = 100;

/// Messages by id. Deliveries have no index by message: dead ones are scanned, and of waiting ones the first of each
/// group.
const BY_ID: &str = "
select m.id, m.topic, m.published_at as at, 'published'::text as what, m.key as detail, null::bigint as delivery, null::boolean as good
from postrider.message m where m.id = any($1)
union all
select d.message_id, d.topic, d.created_at, 'waiting for ' || d.consumer_group, null, d.id, null
from (select * from postrider.delivery d where d.finished_at is null order by d.consumer_group, d.due, d.id limit 20000) d
where d.message_id = any($1)
union all
select d.message_id, d.topic, d.finished_at, 'dead for ' || d.consumer_group, d.cause, d.id, false
from postrider.delivery d where d.cause is not null and d.finished_at is not null and d.message_id = any($1)
union all
select i.message_id::uuid, null, i.received_at, 'consumed by ' || ltrim(i.consumer, '>'), null, null, true
from postrider.inbox i
where i.consumer = any(array(select distinct g.prefix || s.consumer_group
                             from postrider.subscription s, (values (''), ('>')) g(prefix)))
  and i.message_id = any(array(select u::text from unnest($1) u))
order by 3 limit 1000";

/// Messages that haven't left the outbox, or never will.
const IN_OUTBOX: &str = "
select o.id, o.topic, o.created_at, o.state::text as state from postrider.outbox o where o.id = any($1)";

/// Messages by W3C trace id: message ids from the log, item ids from the outbox.
const BY_TRACE: &str = "
(select m.id, null::bigint from postrider.message m where m.trace is not null and substr(m.trace, 4, 32) = $1 limit 100)
union all
(select null, o.id from postrider.outbox o where o.trace is not null and substr(o.trace, 4, 32) = $1 limit 100)";

#[derive(sqlx::FromRow)]
struct MessageEvent {
    id: Uuid,
    topic: Option<String>,
    delivery: Option<i64>,
    #[sqlx(flatten)]
    event: Event,
}

type OutboxRow = (i64, String, OffsetDateTime, String);

/// Timelines of these messages, at most 100.
pub async fn for_messages(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<Timeline>> {
    let ids = ids.get(..MAX_MESSAGES).unwrap_or(ids);
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut connection = pool.acquire().await?;
    let mut timelines: BTreeMap<Uuid, Timeline> = BTreeMap::new();
    let rows: Vec<MessageEvent> = sqlx::query_as(BY_ID)
        .bind(ids)
        .fetch_all(&mut *connection)
        .await?;
    for row in rows {
        let timeline = timelines.entry(row.id).or_insert_with(|| Timeline {
            kind: "message",
            key: row.id.to_string(),
            state: "published".into(),
            ..Timeline::default()
        });
        if let Some(topic) = row.topic
            && row.event.what == "published"
        {
            timeline.state = format!("published to {topic}");
        }
        let items = row.delivery.map(|id| ItemId::new(DELIVERIES.name, id));
        timeline.items.extend(items);
        timeline.events.push(row.event);
    }
    let origin = Origin::load(&mut connection, &OUTBOX).await?;
    let numbers: Vec<(Uuid, i64)> = ids
        .iter()
        .filter_map(|id| Some((*id, origin.number(MessageId::new(*id))?)))
        .collect();
    let outbox_ids: Vec<i64> = numbers.iter().map(|(_, number)| *number).collect();
    for (id, timeline) in in_outbox(&mut connection, origin, &outbox_ids).await? {
        timelines
            .entry(id)
            .and_modify(|known| known.items.extend(timeline.items.clone()))
            .or_insert(timeline);
    }
    // The outbox row may be gone while its attempts are still on record.
    for (id, number) in numbers {
        if let Some(timeline) = timelines.get_mut(&id) {
            let item = ItemId::new(OUTBOX.name, number);
            if !timeline.items.contains(&item) {
                timeline.items.push(item);
            }
        }
    }
    Ok(timelines.into_values().collect())
}

/// Timelines of the messages that carry this W3C trace id.
pub async fn for_trace(pool: &PgPool, trace: &str) -> Result<Vec<Timeline>> {
    let found: Vec<(Option<Uuid>, Option<i64>)> =
        sqlx::query_as(BY_TRACE).bind(trace).fetch_all(pool).await?;
    let mut connection = pool.acquire().await?;
    let origin = Origin::load(&mut connection, &OUTBOX).await?;
    let numbers: Vec<i64> = found.iter().filter_map(|(_, number)| *number).collect();
    let waiting = in_outbox(&mut connection, origin, &numbers).await?;
    drop(connection);
    let ids: Vec<Uuid> = found.into_iter().filter_map(|(id, _)| id).collect();
    let mut timelines = for_messages(pool, &ids).await?;
    timelines.extend(
        waiting
            .into_iter()
            .filter(|(id, _)| !ids.contains(id))
            .map(|(_, timeline)| timeline),
    );
    Ok(timelines)
}

async fn in_outbox(
    connection: &mut PgConnection,
    origin: Origin,
    numbers: &[i64],
) -> Result<Vec<(Uuid, Timeline)>, Error> {
    let rows: Vec<OutboxRow> = sqlx::query_as(IN_OUTBOX)
        .bind(numbers)
        .fetch_all(connection)
        .await?;
    Ok(rows
        .into_iter()
        .map(|(number, topic, at, state)| {
            let id = origin.mint(number).uuid();
            let timeline = Timeline {
                kind: "message",
                key: id.to_string(),
                state: format!("{state} in the outbox"),
                events: vec![Event {
                    at,
                    what: format!("accepted for {topic}"),
                    detail: None,
                    good: None,
                }],
                items: vec![ItemId::new(OUTBOX.name, number)],
                messages: Vec::new(),
            };
            (id, timeline)
        })
        .collect())
}
