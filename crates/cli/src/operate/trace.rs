//! Everything that is known under an id: from the request to the last notification, across services, oldest first.

use std::collections::BTreeSet;

use postrider::{Error, Result};
use postrider_inspect::timeline::{self, Event, ItemId, Timeline};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Operate;
use crate::services;

/// Nobody's id or key is longer.
const LONGEST: usize = 500;

/// What is known under an id.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Timeline)]
pub struct TimelineView {
    /// The id that was asked for.
    pub id: String,
    /// What it is the id of, and what belongs to that.
    pub subjects: Vec<Subject>,
    /// What happened, oldest first.
    pub events: Vec<TimelineEvent>,
}

/// Something that has an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subject {
    /// The service that knows it.
    pub service: String,
    /// What it is: an order, a job, a message.
    pub kind: String,
    /// What it is called: a trace of this leads to it.
    pub key: String,
    /// How it stands.
    pub state: String,
    /// The items of work that belong to it, as `table/number`.
    pub items: Vec<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEvent {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// In which service.
    pub service: String,
    /// To what.
    pub subject: String,
    /// What.
    pub what: String,
    /// More about it.
    pub detail: Option<String>,
    /// Is it what one hopes for, or the contrary? Absent: neither.
    pub good: Option<bool>,
}

impl Operate {
    /// Everything that is known under this id; none if nothing is.
    pub async fn trace(&self, id: &str) -> Result<Option<TimelineView>> {
        let id = id.trim();
        if id.is_empty() || id.len() > LONGEST || id.contains('\0') {
            return Ok(None);
        }
        let mut found: Vec<(&'static str, Timeline)> = Vec::new();
        for service in self.apis.all() {
            let name = service.description().name;
            let trails = service.timeline(id).await.map_err(Error::from)?;
            found.extend(trails.into_iter().map(|trail| (name, trail)));
        }
        found.extend(self.item_trail(id).await?);
        let messages = self.messages(id, &found).await?;
        found.extend(
            messages
                .into_iter()
                .map(|trail| (services::MESSAGES, trail)),
        );
        if found.is_empty() {
            return Ok(None);
        }
        let items: Vec<ItemId> = found
            .iter()
            .flat_map(|(_, trail)| trail.items.iter().cloned())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let told = self.of_items(items).await?;
        Ok(Some(timeline(id, found, told)))
    }

    /// What was tried with these items and done to them, as the database of each knows.
    async fn of_items(&self, items: Vec<ItemId>) -> Result<Vec<(ItemId, Event)>> {
        let (here, there): (Vec<ItemId>, Vec<ItemId>) = items
            .into_iter()
            .partition(|item| self.letters.place(&item.work_table).is_none());
        let mut told = timeline::for_items(&self.pool, &here).await?;
        for item in there {
            let pool = self.letters.place(&item.work_table).unwrap_or(&self.pool);
            told.extend(timeline::for_items(pool, &[item]).await?);
        }
        Ok(told)
    }

    /// What an id is the id of; empty if nobody knows it.
    pub async fn search(&self, id: &str) -> Result<Vec<Subject>> {
        let timeline = self.trace(id).await?;
        Ok(timeline
            .map(|timeline| timeline.subjects)
            .unwrap_or_default())
    }

    /// An item of work by table and number, for as long as anything is known of it.
    async fn item_trail(&self, id: &str) -> Result<Option<(&'static str, Timeline)>> {
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
            Some(_) => "there",
            None if self.of_items(vec![item.clone()]).await?.is_empty() => return Ok(None),
            None => "gone: done or archived",
        };
        let trail = Timeline {
            kind: "item",
            key: id.to_owned(),
            state: state.to_owned(),
            items: vec![item],
            ..Timeline::default()
        };
        Ok(Some((services::service_of_table(table), trail)))
    }

    /// The message of this id, those of this W3C trace, and those that belong to what was found.
    async fn messages(
        &self,
        id: &str,
        found: &[(&'static str, Timeline)],
    ) -> Result<Vec<Timeline>> {
        let mut ids: Vec<Uuid> = found
            .iter()
            .flat_map(|(_, trail)| trail.messages.iter().copied())
            .collect();
        ids.extend(id.parse::<Uuid>());
        let mut trails = timeline::for_messages(&self.pool, &ids).await?;
        let is_trace = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_trace {
            let more = timeline::for_trace(&self.pool, &id.to_ascii_lowercase()).await?;
            trails.extend(more);
        }
        Ok(trails)
    }
}

fn timeline(
    id: &str,
    found: Vec<(&'static str, Timeline)>,
    told: Vec<(ItemId, Event)>,
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
    for (service, trail) in found {
        let subject = Subject {
            service: service.to_owned(),
            kind: trail.kind.to_owned(),
            key: trail.key,
            state: trail.state,
            items: trail.items.iter().map(ItemId::to_string).collect(),
        };
        let name = format!("{} {}", subject.kind, subject.key);
        events.extend(
            trail
                .events
                .into_iter()
                .map(|e| event(service, name.clone(), e)),
        );
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    for (item, e) in told {
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
