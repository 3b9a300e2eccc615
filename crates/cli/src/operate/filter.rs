//! The filter language: one line of words that selects dead letters, the same in the API, the console and the CLI.
//!
//! `service:orders code:TIMEOUT since:2h "connection refused"`: every word must match. A word without a name is searched
//! in the failure's message. A value with spaces goes in double quotes, in which `\"` and `\\` are escapes.

#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use postrider::{dead_letter, internal::duration};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::services;

/// The known words and their meanings.
pub const WORDS: [(&str, &str); 8] = [
    ("service", "of this service"),
    ("table", "of this work table"),
    (
        "kind",
        "of this kind: a topic, a consumer group, an event type",
    ),
    ("code", "with this failure code"),
    ("cause", "of this group, as the groups name it"),
    (
        "since",
        "failed since: 2h, 30m, or a time such as 2026-01-31T12:00:00Z",
    ),
    ("until", "failed before: 2h (ago), or a time"),
    ("id", "these items, e.g. id:1,2,3; needs table"),
];

/// An invalid word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word}: {problem}")]
pub struct FilterError {
    /// The word.
    pub word: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FilterError {
    fn new(word: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            word: word.into(),
            problem: problem.into(),
        }
    }
}

/// A point in time as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// This long ago.
    Ago(std::time::Duration),
    /// At this time.
    At(OffsetDateTime),
}

impl When {
    fn resolve(self, now: OffsetDateTime) -> OffsetDateTime {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => time::Duration::try_from(ago)
                .ok()
                .and_then(|ago| now.checked_sub(ago))
                .unwrap_or(OffsetDateTime::UNIX_EPOCH),
        }
    }
}

/// A filter as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this service.
    pub service: Option<String>,
    /// Of this work table.
    pub table: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// With this code.
    pub code: Option<String>,
    /// Of this group.
    pub cause: Option<String>,
    /// Failed since then.
    pub since: Option<When>,
    /// Failed before then.
    pub until: Option<When>,
    /// These items.
    pub ids: Vec<i64>,
    /// With this in the message.
    pub text: Option<String>,
}

impl Filter {
    /// Parses a line of words. An empty line matches everything.
    pub fn parse(line: &str) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        for word in text::words(line)? {
            filter.add(word)?;
        }
        if filter.ids.is_empty() || filter.table.is_some() {
            return Ok(filter);
        }
        Err(FilterError::new(
            "id",
            "needs the work table, too: table:NAME id:1,2",
        ))
    }

    /// Matches everything.
    #[must_use]
    pub fn matches_everything(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, word: text::Word) -> Result<(), FilterError> {
        let value = word.value;
        let once = |slot: &mut Option<String>, name: &str| match slot {
            Some(_) => Err(FilterError::new(name, "appears twice")),
            None => {
                *slot = Some(value.clone());
                Ok(())
            }
        };
        match word.name.as_deref() {
            None => match &mut self.text {
                Some(text) => {
                    text.push(' ');
                    text.push_str(&value);
                    Ok(())
                }
                None => once(&mut self.text, "text"),
            },
            Some("service") => {
                known(
                    &value,
                    "service",
                    services::named_tables().map(|(name, _)| name),
                )?;
                once(&mut self.service, "service")
            }
            Some("table") => {
                known(
                    &value,
                    "table",
                    services::work_tables().map(|table| table.name),
                )?;
                once(&mut self.table, "table")
            }
            Some("kind") => once(&mut self.kind, "kind"),
            Some("code") => once(&mut self.code, "code"),
            Some("cause") => once(&mut self.cause, "cause"),
            Some("since") => when(&mut self.since, "since", &value),
            Some("until") => when(&mut self.until, "until", &value),
            Some("id") => {
                for id in value.split(',') {
                    let id = id.trim().parse().map_err(|_| {
                        FilterError::new(
                            format!("id:{value}"),
                            "write whole numbers with commas between: id:1,2,3",
                        )
                    })?;
                    self.ids.push(id);
                }
                Ok(())
            }
            Some(name) => {
                let names = WORDS.map(|(name, _)| name).join(", ");
                Err(FilterError::new(
                    format!("{name}:"),
                    format!(
                        "is unknown; the words are {names}; to search for it in messages, put it in quotes: \"{name}:…\""
                    ),
                ))
            }
        }
    }

    /// The library's filter; `now` is the database's time.
    #[must_use]
    pub fn resolve(&self, now: OffsetDateTime) -> dead_letter::Filter {
        let service_tables = self.service.as_ref().map(|service| {
            services::named_tables()
                .filter(|(name, _)| name == service)
                .flat_map(|(_, tables)| tables)
                .map(str::to_owned)
                .collect::<Vec<String>>()
        });
        let tables = match (&self.table, service_tables) {
            (Some(table), Some(service_tables)) if !service_tables.contains(table) => {
                Some(Vec::new())
            }
            (Some(table), _) => Some(vec![table.clone()]),
            (None, service_tables) => service_tables,
        };
        dead_letter::Filter {
            work_tables: tables,
            kind: self.kind.clone(),
            code: self.code.clone(),
            cause: self.cause.clone(),
            text: self.text.clone(),
            since: self.since.map(|when| when.resolve(now)),
            until: self.until.map(|when| when.resolve(now)),
            ids: (!self.ids.is_empty()).then(|| self.ids.clone()),
        }
    }
}

/// Checks a value against a fixed list.
fn known(
    value: &str,
    name: &str,
    all: impl Iterator<Item = &'static str>,
) -> Result<(), FilterError> {
    let all: Vec<&str> = all.collect();
    if all.contains(&value) {
        return Ok(());
    }
    Err(FilterError::new(
        format!("{name}:{value}"),
        format!("there is no such {name}; there are {}", all.join(", ")),
    ))
}

fn when(slot: &mut Option<When>, name: &str, value: &str) -> Result<(), FilterError> {
    let invalid = || {
        FilterError::new(
            format!("{name}:{value}"),
            "write how long ago, such as 30m, 2h or 7d, or a time such as 2026-01-31T12:00:00Z",
        )
    };
    let when = match OffsetDateTime::parse(value, &Rfc3339) {
        Ok(at) => When::At(at),
        Err(_) => When::Ago(duration::parse(value).ok_or_else(invalid)?),
    };
    match slot.replace(when) {
        None => Ok(()),
        Some(_) => Err(FilterError::new(name, "appears twice")),
    }
}

/// In canonical form: parsing it gives the same filter.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        let mut named = |name: &str, value: &Option<String>| {
            if let Some(value) = value {
                words.push(format!("{name}:{}", text::quote(value)));
            }
        };
        named("service", &self.service);
        named("table", &self.table);
        named("kind", &self.kind);
        named("code", &self.code);
        named("cause", &self.cause);
        let at = |when: When| match when {
            When::Ago(ago) => duration::format(ago),
            When::At(at) => at.format(&Rfc3339).unwrap_or_default(),
        };
        named("since", &self.since.map(at));
        named("until", &self.until.map(at));
        if !self.ids.is_empty() {
            let ids: Vec<String> = self.ids.iter().map(i64::to_string).collect();
            words.push(format!("id:{}", ids.join(",")));
        }
        if let Some(text) = &self.text {
            words.push(text::quoted(text));
        }
        f.write_str(&words.join(" "))
    }
}
