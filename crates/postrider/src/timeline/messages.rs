//! Messages: published, delivered, taken in.

use std::collections::BTreeMap;

use sqlx::types::time::OffsetDateTime;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Event, ItemId, Trail};
use crate::outbox::OUTBOX;
use crate::transport::{DELIVERIES, MessageId, Origin};
use crate::{Error, Result};

/// More messages than this of one thing are not followed.
const MOST: usize = 100;

/// What is known of messages by their ids. Deliveries have no index by message: those that are dead are looked through, and of
/// those that wait the first of each group.
const OF_MESSAGES: &str = "
select m.id, m.topic, m.published_at as at, 'published'::text as what, m.key as detail, null::bigint as delivery, null::boolean as good
from postrider.message m where m.id = any($1)
union all
select d.message_id, d.topic, d.created_at, 'waits for ' || d.consumer_group, null, d.id, null
from (select * from postrider.delivery d where d.finished_at is null order by d.consumer_group, d.due, d.id limit 20000) d
where d.message_id = any($1)
union all
select d.message_id, d.topic, d.finished_at, 'given up for ' || d.consumer_group, d.cause, d.id, false
from postrider.delivery d where d.cause is not null and d.finished_at is not null and d.message_id = any($1)
union all
select i.message_id::uuid, null, i.received_at, 'taken in by ' || ltrim(i.consumer, '>'), null, null, true
from postrider.inbox i
where i.consumer = any(array(select distinct g.prefix || s.consumer_group
                             from postrider.subscription s, (values (''), ('>')) g(prefix)))
  and i.message_id = any(array(select u::text from unnest($1) u))
order by 3 limit 1000";

/// Messages that have not left the outbox, or never will.
const IN_OUTBOX: &str = "
select o.id, o.topic, o.created_at, o.state::text as state from postrider.outbox o where o.id = any($1)";

/// Messages of a W3C trace id: those in the log, and the numbers of those in the outbox.
const OF_TRACE: &str = "
(select m.id, null::bigint from postrider.message m where m.trace is not null and substr(m.trace, 4, 32) = $1 limit 100)
union all
(select null, o.id from postrider.outbox o where o.trace is not null and substr(o.trace, 4, 32) = $1 limit 100)";

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    topic: Option<String>,
    delivery: Option<i64>,
    #[sqlx(flatten)]
    event: Event,
}

type Waiting = (i64, String, OffsetDateTime, String);

/// What is known of these messages.
pub async fn of_messages(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<Trail>> {
    let ids = ids.get(..MOST).unwrap_or(ids);
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut connection = pool.acquire().await?;
    let mut trails: BTreeMap<Uuid, Trail> = BTreeMap::new();
    let rows: Vec<Row> = sqlx::query_as(OF_MESSAGES)
        .bind(ids)
        .fetch_all(&mut *connection)
        .await?;
    for row in rows {
        let trail = trails.entry(row.id).or_insert_with(|| Trail {
            kind: "message",
            key: row.id.to_string(),
            state: "published".into(),
            ..Trail::default()
        });
        if let Some(topic) = row.topic
            && row.event.what == "published"
        {
            trail.state = format!("published to {topic}");
        }
        let items = row.delivery.map(|id| ItemId::new(DELIVERIES.name, id));
        trail.items.extend(items);
        trail.events.push(row.event);
    }
    let origin = Origin::of(&mut connection, &OUTBOX).await?;
    let numbers: Vec<i64> = ids
        .iter()
        .filter_map(|id| origin.number(MessageId::new(*id)))
        .collect();
    for (id, trail) in in_outbox(&mut connection, origin, &numbers).await? {
        trails
            .entry(id)
            .and_modify(|known| known.items.extend(trail.items.clone()))
            .or_insert(trail);
    }
    // One that is known by its number alone: its attempts may be on record.
    for (id, number) in ids
        .iter()
        .filter_map(|id| Some((id, origin.number(MessageId::new(*id))?)))
    {
        if let Some(trail) = trails.get_mut(id) {
            let item = ItemId::new(OUTBOX.name, number);
            if !trail.items.contains(&item) {
                trail.items.push(item);
            }
        }
    }
    Ok(trails.into_values().collect())
}

/// Messages that were sent on behalf of this W3C trace id.
pub async fn of_trace(pool: &PgPool, trace: &str) -> Result<Vec<Trail>> {
    let found: Vec<(Option<Uuid>, Option<i64>)> =
        sqlx::query_as(OF_TRACE).bind(trace).fetch_all(pool).await?;
    let mut connection = pool.acquire().await?;
    let origin = Origin::of(&mut connection, &OUTBOX).await?;
    let numbers: Vec<i64> = found.iter().filter_map(|(_, number)| *number).collect();
    let waiting = in_outbox(&mut connection, origin, &numbers).await?;
    drop(connection);
    let ids: Vec<Uuid> = found.into_iter().filter_map(|(id, _)| id).collect();
    let mut trails = of_messages(pool, &ids).await?;
    trails.extend(
        waiting
            .into_iter()
            .filter(|(id, _)| !ids.contains(id))
            .map(|(_, trail)| trail),
    );
    Ok(trails)
}

async fn in_outbox(
    connection: &mut PgConnection,
    origin: Origin,
    numbers: &[i64],
) -> Result<Vec<(Uuid, Trail)>, Error> {
    let rows: Vec<Waiting> = sqlx::query_as(IN_OUTBOX)
        .bind(numbers)
        .fetch_all(connection)
        .await?;
    Ok(rows
        .into_iter()
        .map(|(number, topic, at, state)| {
            let id = origin.mint(number).uuid();
            let trail = Trail {
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
            (id, trail)
        })
        .collect())
}
