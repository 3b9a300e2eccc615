//! The filter language: one line of words that says which dead letters are meant, the same in the API, the console and on
//! the command line.
//!
//! `service:orders code:TIMEOUT since:2h "connection refused"`: every word must fit. A word without a name is looked for in
//! the failure's message. A value with spaces goes in double quotes, in which `\"` and `\\` stand for themselves.

#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use postrider::{dead_letter, duration};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::services;

/// The words that are known, and what each means.
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
        "given up since: 2h, 30m, or a time such as 2026-01-31T12:00:00Z",
    ),
    ("until", "given up before: 2h (that long ago), or a time"),
    ("id", "these items, e.g. id:1,2,3; needs table"),
];

/// A word that can't be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word}: {problem}")]
pub struct Unreadable {
    /// The word, as it stands.
    pub word: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Unreadable {
    fn new(word: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            word: word.into(),
            problem: problem.into(),
        }
    }
}

/// A point in time as somebody wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// So long ago.
    Ago(std::time::Duration),
    /// Then.
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

/// A filter as it was written.
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
    /// Given up since then.
    pub since: Option<When>,
    /// Given up before then.
    pub until: Option<When>,
    /// These items.
    pub ids: Vec<i64>,
    /// With this in the message.
    pub text: Option<String>,
}

impl Filter {
    /// Reads a line of words. Nothing fits everything.
    pub fn parse(line: &str) -> Result<Self, Unreadable> {
        let mut filter = Self::default();
        for word in text::words(line)? {
            filter.take(word)?;
        }
        if filter.ids.is_empty() || filter.table.is_some() {
            return Ok(filter);
        }
        Err(Unreadable::new(
            "id",
            "needs the work table, too: table:NAME id:1,2",
        ))
    }

    /// Nothing is left out.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    fn take(&mut self, word: text::Word) -> Result<(), Unreadable> {
        let value = word.value;
        let once = |slot: &mut Option<String>, name: &str| match slot {
            Some(_) => Err(Unreadable::new(
                name,
                "is there twice; one of them can't fit",
            )),
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
                        Unreadable::new(
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
                Err(Unreadable::new(
                    format!("{name}:"),
                    format!(
                        "is not known; the words are {names}; to look for it in messages, put it in quotes: \"{name}:…\""
                    ),
                ))
            }
        }
    }

    /// The engine's filter; `now` is the database's time.
    #[must_use]
    pub fn resolve(&self, now: OffsetDateTime) -> dead_letter::Filter {
        let of_service = self.service.as_ref().map(|service| {
            services::named_tables()
                .filter(|(name, _)| name == service)
                .flat_map(|(_, tables)| tables)
                .map(str::to_owned)
                .collect::<Vec<String>>()
        });
        let tables = match (&self.table, of_service) {
            (Some(table), Some(of_service)) if !of_service.contains(table) => Some(Vec::new()),
            (Some(table), _) => Some(vec![table.clone()]),
            (None, of_service) => of_service,
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

/// One of a list that never changes while the program runs.
fn known(
    value: &str,
    name: &str,
    all: impl Iterator<Item = &'static str>,
) -> Result<(), Unreadable> {
    let all: Vec<&str> = all.collect();
    if all.contains(&value) {
        return Ok(());
    }
    Err(Unreadable::new(
        format!("{name}:{value}"),
        format!("there is no such {name}; there are {}", all.join(", ")),
    ))
}

fn when(slot: &mut Option<When>, name: &str, value: &str) -> Result<(), Unreadable> {
    let unreadable = || {
        Unreadable::new(
            format!("{name}:{value}"),
            "write how long ago, such as 30m, 2h or 7d, or a time such as 2026-01-31T12:00:00Z",
        )
    };
    let when = match OffsetDateTime::parse(value, &Rfc3339) {
        Ok(at) => When::At(at),
        Err(_) => When::Ago(duration::parse(value).ok_or_else(unreadable)?),
    };
    match slot.replace(when) {
        None => Ok(()),
        Some(_) => Err(Unreadable::new(name, "is there twice")),
    }
}

/// As it would be written: reading it gives the same filter.
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
