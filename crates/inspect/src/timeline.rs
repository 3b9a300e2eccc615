//! What happened to one item, message or service object, as events in time.
//!
//! A service describes what it knows under an id as a [`Timeline`]: its own events, and the items and messages that
//! belong to it. This module adds attempts and operators' actions ([`for_items`]), publications and deliveries
//! ([`for_messages`]).

mod messages;

use postrider::Result;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

pub use messages::{for_messages, for_trace};

/// The latest attempts and actions of each item, up to what fits on a page.
const ITEM_EVENTS: &str = "
select u.work_table, u.item_id, a.at, 'attempt ' || a.attempt || ': ' || a.outcome as what,
       concat_ws(', ', a.code, a.message, 'by ' || a.worker) as detail, a.outcome = 'done' as good
from unnest($1::text[], $2::bigint[]) u(work_table, item_id), lateral (
    select * from postrider.attempt a where a.work_table = u.work_table and a.item_id = u.item_id
    order by a.at desc limit 50) a
union all
select u.work_table, u.item_id, d.at, d.action || ' by ' || d.actor, d.reason, null
from unnest($1::text[], $2::bigint[]) u(work_table, item_id), lateral (
    select * from postrider.audit d where d.work_table = u.work_table and d.items @> array[u.item_id]
    order by d.id desc limit 50) d
union all
select u.work_table, u.item_id, r.archived_at, 'archived', null, null
from unnest($1::text[], $2::bigint[]) u(work_table, item_id), lateral (
    select r.archived_at from postrider.archive r where r.work_table = u.work_table and r.item_id = u.item_id limit 10) r
order by 3 limit 2000";

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, sqlx::FromRow)]
pub struct Event {
    /// When it happened.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// What happened, in a few words.
    pub what: String,
    /// Details.
    pub detail: Option<String>,
    /// `true` for a success, `false` for a failure, `None` for neither.
    pub good: Option<bool>,
}

/// An item of a work table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, sqlx::FromRow)]
pub struct ItemId {
    /// Work table.
    pub work_table: String,
    /// Id within the table.
    pub item_id: i64,
}

impl ItemId {
    /// The item with this id in this table.
    pub fn new(work_table: impl Into<String>, item_id: i64) -> Self {
        Self {
            work_table: work_table.into(),
            item_id,
        }
    }
}

impl std::fmt::Display for ItemId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.work_table, self.item_id)
    }
}

/// What is known about one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Kind of object: order, job, message.
    pub kind: &'static str,
    /// Its id or key.
    pub key: String,
    /// Current state.
    pub state: String,
    /// Its own events.
    pub events: Vec<Event>,
    /// Items that belong to it.
    pub items: Vec<ItemId>,
    /// Messages that belong to it.
    pub messages: Vec<Uuid>,
}

#[derive(sqlx::FromRow)]
struct ItemEvent {
    #[sqlx(flatten)]
    item: ItemId,
    #[sqlx(flatten)]
    event: Event,
}

/// Attempts and operators' actions of these items, oldest first.
pub async fn for_items(pool: &PgPool, items: &[ItemId]) -> Result<Vec<(ItemId, Event)>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let (tables, ids): (Vec<&str>, Vec<i64>) = items
        .iter()
        .map(|item| (item.work_table.as_str(), item.item_id))
        .unzip();
    let rows: Vec<ItemEvent> = sqlx::query_as(ITEM_EVENTS)
        .bind(tables)
        .bind(ids)
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(|row| (row.item, row.event)).collect())
}
