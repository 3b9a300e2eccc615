//! The timeline of an id: everything from the request to the last notification, across services, oldest first.

use std::collections::BTreeSet;

use postrider::{Error, Result};
use postrider_inspect::timeline::{self, Event, ItemId, Timeline};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Operate;
use crate::services;

/// Maximum length of an id or key.
const MAX_ID: usize = 500;

/// The timeline of an id.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Timeline)]
pub struct TimelineView {
    /// The requested id.
    pub id: String,
    /// The item with this id, and what belongs to it.
    pub subjects: Vec<Subject>,
    /// What happened, oldest first.
    pub events: Vec<TimelineEvent>,
}

/// An item with an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subject {
    /// Its service.
    pub service: String,
    /// Its kind: an order, a job, a message.
    pub kind: String,
    /// Its id or key.
    pub key: String,
    /// Its state.
    pub state: String,
    /// Its work items, as `table/number`.
    pub items: Vec<String>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEvent {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Its service.
    pub service: String,
    /// The item or work item.
    pub subject: String,
    /// What happened.
    pub what: String,
    /// Details.
    pub detail: Option<String>,
    /// Good (true), bad (false), or neither (absent).
    pub good: Option<bool>,
}

impl Operate {
    /// The timeline of this id; none if no service knows it.
    pub async fn timeline(&self, id: &str) -> Result<Option<TimelineView>> {
        let id = id.trim();
        if id.is_empty() || id.len() > MAX_ID || id.contains('\0') {
            return Ok(None);
        }
        let mut found: Vec<(&'static str, Timeline)> = Vec::new();
        for service in self.apis.all() {
            let name = service.description().name;
            let timelines = service.timeline(id).await.map_err(Error::from)?;
            found.extend(timelines.into_iter().map(|timeline| (name, timeline)));
        }
        found.extend(self.item_timeline(id).await?);
        let messages = self.messages(id, &found).await?;
        found.extend(
            messages
                .into_iter()
                .map(|timeline| (services::MESSAGES, timeline)),
        );
        if found.is_empty() {
            return Ok(None);
        }
        let items: Vec<ItemId> = found
            .iter()
            .flat_map(|(_, timeline)| timeline.items.iter().cloned())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let events = self.item_events(items).await?;
        Ok(Some(assemble(id, found, events)))
    }

    /// Attempts and actions of these work items, from the database of each.
    async fn item_events(&self, items: Vec<ItemId>) -> Result<Vec<(ItemId, Event)>> {
        let (here, there): (Vec<ItemId>, Vec<ItemId>) = items
            .into_iter()
            .partition(|item| self.letters.remote_pool(&item.work_table).is_none());
        let mut events = timeline::for_items(&self.pool, &here).await?;
        for item in there {
            let pool = self
                .letters
                .remote_pool(&item.work_table)
                .unwrap_or(&self.pool);
            events.extend(timeline::for_items(pool, &[item]).await?);
        }
        Ok(events)
    }

    /// The items with this id; empty if no service knows it.
    pub async fn search(&self, id: &str) -> Result<Vec<Subject>> {
        let timeline = self.timeline(id).await?;
        Ok(timeline
            .map(|timeline| timeline.subjects)
            .unwrap_or_default())
    }

    /// A work item by table and number, as long as anything is recorded about it.
    async fn item_timeline(&self, id: &str) -> Result<Option<(&'static str, Timeline)>> {
        let Some((table, number)) = id.rsplit_once('/') else {
            return Ok(None);
        };
        let Ok(number) = number.parse::<i64>() else {
            return Ok(None);
        };
        let known = services::work_tables().any(|known| known.name == table);
        if !known {
            return Ok(None);
        }
        let item = ItemId::new(table, number);
        let state = match self.letters.show(&self.pool, table, number).await? {
            Some(detail) if detail.dead => "dead",
            Some(_) => "active",
            None if self.item_events(vec![item.clone()]).await?.is_empty() => return Ok(None),
            None => "done or archived",
        };
        let timeline = Timeline {
            kind: "item",
            key: id.to_owned(),
            state: state.to_owned(),
            items: vec![item],
            ..Timeline::default()
        };
        Ok(Some((services::service_of_table(table), timeline)))
    }

    /// The message with this id, those of this W3C trace, and those that belong to the items found.
    async fn messages(
        &self,
        id: &str,
        found: &[(&'static str, Timeline)],
    ) -> Result<Vec<Timeline>> {
        let mut ids: Vec<Uuid> = found
            .iter()
            .flat_map(|(_, timeline)| timeline.messages.iter().copied())
            .collect();
        ids.extend(id.parse::<Uuid>());
        let mut timelines = timeline::for_messages(&self.pool, &ids).await?;
        let is_trace = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_trace {
            let more = timeline::for_trace(&self.pool, &id.to_ascii_lowercase()).await?;
            timelines.extend(more);
        }
        Ok(timelines)
    }
}

fn assemble(
    id: &str,
    found: Vec<(&'static str, Timeline)>,
    item_events: Vec<(ItemId, Event)>,
) -> TimelineView {
    let mut subjects: Vec<Subject> = Vec::new();
    let mut events: Vec<TimelineEvent> = Vec::new();
    let event = |service: &str, subject: String, event: Event| TimelineEvent {
        at: event.at,
        service: service.to_owned(),
        subject,
        what: event.what,
        detail: event.detail.filter(|detail| !detail.is_empty()),
        good: event.good,
    };
    for (service, timeline) in found {
        let subject = Subject {
            service: service.to_owned(),
            kind: timeline.kind.to_owned(),
            key: timeline.key,
            state: timeline.state,
            items: timeline.items.iter().map(ItemId::to_string).collect(),
        };
        let name = format!("{} {}", subject.kind, subject.key);
        events.extend(
            timeline
                .events
                .into_iter()
                .map(|e| event(service, name.clone(), e)),
        );
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    for (item, e) in item_events {
        let service = services::service_of_table(&item.work_table);
        events.push(event(service, item.to_string(), e));
    }
    events.sort_by_key(|event| event.at);
    TimelineView {
        id: id.to_owned(),
        subjects,
        events,
    }
}
