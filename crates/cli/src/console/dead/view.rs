//! Dead letters, causes and operations as rows.

use crate::operate::{
    dead::{GroupView, LetterView, OperationView},
    filter::Filter,
};

use super::super::format::{self, When};

/// A dead letter.
pub(super) struct Letter {
    pub table: String,
    pub id: i64,
    pub kind: String,
    pub code: String,
    pub message: String,
    pub attempts: i32,
    pub died: When,
}

impl Letter {
    /// Its value in forms.
    pub fn key(&self) -> String {
        key(&self.table, self.id)
    }

    pub fn link(&self) -> String {
        format!("/dead/{}/{}", format::in_path(&self.table), self.id)
    }
}

/// An item as forms name it.
pub(super) fn key(table: &str, id: i64) -> String {
    format!("{table}/{id}")
}

impl From<LetterView> for Letter {
    fn from(view: LetterView) -> Self {
        Self {
            died: view.died_at.into(),
            table: view.work_table,
            id: view.id,
            kind: view.kind,
            code: view.code,
            message: view.message.unwrap_or_default(),
            attempts: view.attempts,
        }
    }
}

/// Dead letters with the same cause.
pub(super) struct Group {
    pub count: String,
    pub cause: String,
    pub table: String,
    pub kind: String,
    pub link: String,
    pub last: When,
}

impl From<GroupView> for Group {
    fn from(view: GroupView) -> Self {
        let filter = Filter {
            table: Some(view.work_table.clone()),
            kind: (!view.kind.is_empty()).then(|| view.kind.clone()),
            cause: Some(view.cause.clone()),
            ..Filter::default()
        };
        Self {
            count: format::count(view.count),
            link: format!("/dead?filter={}", format::in_query(&filter.to_string())),
            cause: view.cause,
            table: view.work_table,
            kind: view.kind,
            last: view.last.into(),
        }
    }
}

/// A redrive or archive operation.
pub(super) struct Operation {
    pub id: i64,
    pub action: String,
    pub rate: String,
    pub state: String,
    pub class: &'static str,
    pub which: String,
    pub actor: String,
    pub reason: String,
    pub changed: String,
    pub skipped: String,
    pub has_skipped: bool,
    pub stoppable: bool,
    pub at: When,
}

impl From<OperationView> for Operation {
    fn from(view: OperationView) -> Self {
        let class = match view.state.as_str() {
            "running" => "busy",
            "done" => "good",
            _ => "quiet",
        };
        Self {
            id: view.id,
            rate: view.rate.map_or_else(String::new, |rate| {
                format!("up to {}/s", format::rate(rate))
            }),
            class,
            stoppable: view.state == "running",
            which: which(&view.filter),
            state: view.state,
            action: view.action,
            actor: view.actor,
            reason: view.reason.unwrap_or_default(),
            changed: format::count(view.changed),
            has_skipped: view.skipped > 0,
            skipped: format::count(view.skipped),
            at: view.created_at.into(),
        }
    }
}

/// The filter in a few words.
fn which(filter: &serde_json::Value) -> String {
    let parts = filter.as_object().into_iter().flatten();
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(items) => {
            let items = items.iter().map(|item| {
                item.as_str()
                    .map_or_else(|| item.to_string(), str::to_owned)
            });
            items.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    let parts: Vec<String> = parts
        .map(|(name, value)| format!("{name}: {}", text(value)))
        .collect();
    if parts.is_empty() {
        "all".to_owned()
    } else {
        parts.join("; ")
    }
}
