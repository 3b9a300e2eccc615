//! Trails: what is known of one thing, from the request to its end, as events in time.
//!
//! A service tells what it knows under an id as a [`Trail`]: events of its own, and the items of work and the messages that
//! belong to it. The engine adds what it knows of those: attempts and deeds of people ([`of_items`]), publications and
//! deliveries ([`of_messages`]).

mod messages;

use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use crate::Result;

pub use messages::{of_messages, of_trace};

/// Of each item the latest attempts and deeds, no more than fit on a page.
const ATTEMPTS: &str = "
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
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// What, in a few words.
    pub what: String,
    /// More about it.
    pub detail: Option<String>,
    /// Is it what one hopes for, or the contrary? None: neither.
    pub good: Option<bool>,
}

/// An item of work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, sqlx::FromRow)]
pub struct ItemId {
    /// Its work table.
    pub work_table: String,
    /// Its id there.
    pub item_id: i64,
}

impl ItemId {
    /// The item of this table.
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

/// What is known of one thing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// What it is: an order, a job, a message.
    pub kind: &'static str,
    /// What it is called.
    pub key: String,
    /// How it stands.
    pub state: String,
    /// What happened to it.
    pub events: Vec<Event>,
    /// Items of work that belong to it.
    pub items: Vec<ItemId>,
    /// Messages that belong to it.
    pub messages: Vec<Uuid>,
}

#[derive(sqlx::FromRow)]
struct OfItem {
    #[sqlx(flatten)]
    item: ItemId,
    #[sqlx(flatten)]
    event: Event,
}

/// What was tried with these items, and what people did to them, oldest first.
pub async fn of_items(pool: &PgPool, items: &[ItemId]) -> Result<Vec<(ItemId, Event)>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let (tables, ids): (Vec<&str>, Vec<i64>) = items
        .iter()
        .map(|item| (item.work_table.as_str(), item.item_id))
        .unzip();
    let found: Vec<OfItem> = sqlx::query_as(ATTEMPTS)
        .bind(tables)
        .bind(ids)
        .fetch_all(pool)
        .await?;
    Ok(found.into_iter().map(|row| (row.item, row.event)).collect())
}
