//! What is told about dead letters, groups and orders.

use postrider::{
    attempts::Attempt,
    audit::Audited,
    dead_letter::{Cursor, DeadLetter, Detail, Group, Operation},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::services;

/// An item that was given up.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LetterView {
    /// Its work table.
    #[schema(example = "orders.outbox_orders")]
    pub work_table: String,
    /// Its number there.
    pub id: i64,
    /// The service that it belongs to.
    pub service: String,
    /// Its kind; empty where the table has one kind only.
    pub kind: String,
    /// The last failure's code.
    #[schema(example = "NETWORK_TIMEOUT")]
    pub code: String,
    /// Its category.
    pub category: Option<String>,
    /// Its message.
    pub message: Option<String>,
    /// What it has in common with others: code and message without the particulars.
    pub cause: String,
    /// Failed attempts.
    pub attempts: i32,
    /// Lost workers.
    pub losses: i32,
    /// When it was given up.
    #[serde(with = "time::serde::rfc3339")]
    pub died_at: OffsetDateTime,
}

impl LetterView {
    /// Where the next page begins.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor {
            died_at: self.died_at,
            work_table: self.work_table.clone(),
            id: self.id,
        }
    }
}

impl From<DeadLetter> for LetterView {
    fn from(letter: DeadLetter) -> Self {
        Self {
            service: services::service_of_table(&letter.work_table).to_owned(),
            work_table: letter.work_table,
            id: letter.id,
            kind: letter.kind,
            code: letter.code,
            category: letter.category,
            message: letter.message,
            cause: letter.cause,
            attempts: letter.attempts,
            losses: letter.losses,
            died_at: letter.died_at,
        }
    }
}

/// Dead letters with one cause.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// The work table.
    pub work_table: String,
    /// The service.
    pub service: String,
    /// The kind of item.
    pub kind: String,
    /// The failure's code.
    pub code: String,
    /// What they have in common; in a filter `cause:"…"`.
    pub cause: String,
    /// How many.
    pub count: i64,
    /// When the first was given up.
    #[serde(with = "time::serde::rfc3339")]
    pub first: OffsetDateTime,
    /// When the last was given up.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
    /// The number of one of them.
    pub example: i64,
}

impl From<Group> for GroupView {
    fn from(group: Group) -> Self {
        Self {
            service: services::service_of_table(&group.work_table).to_owned(),
            work_table: group.work_table,
            kind: group.kind,
            code: group.code,
            cause: group.cause,
            count: group.count,
            first: group.first,
            last: group.last,
            example: group.example,
        }
    }
}

/// An item with its payload and its history.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ItemView {
    /// Its work table.
    pub work_table: String,
    /// Its number there.
    pub id: i64,
    /// The service that it belongs to.
    pub service: String,
    /// Is it dead now? One that was redriven is shown, too, for as long as its row is there.
    pub dead: bool,
    /// The row as it stands.
    pub row: Value,
    /// What its handler reads.
    pub payload: Value,
    /// What was tried, oldest first; a success at the first try leaves no entry.
    pub attempts: Vec<AttemptView>,
    /// What people did to it, oldest first.
    pub audit: Vec<DeedView>,
}

impl ItemView {
    pub(super) fn new(work_table: &str, id: i64, detail: Detail) -> Self {
        Self {
            service: services::service_of_table(work_table).to_owned(),
            work_table: work_table.to_owned(),
            id,
            dead: detail.dead,
            row: detail.row,
            payload: detail.payload,
            attempts: detail.attempts.into_iter().map(Into::into).collect(),
            audit: detail.audit.into_iter().map(Into::into).collect(),
        }
    }
}

/// An attempt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Which it was, from 1.
    pub attempt: i32,
    /// Who made it.
    pub worker: String,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// When it was settled.
    #[serde(with = "time::serde::rfc3339")]
    pub ended_at: OffsetDateTime,
    /// `done`, `retry`, `snooze` or `dead`.
    pub outcome: String,
    /// The failure's code.
    pub code: Option<String>,
    /// The failure's category.
    pub category: Option<String>,
    /// The failure's message.
    pub message: Option<String>,
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            worker: attempt.worker,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            outcome: attempt.outcome,
            code: attempt.code,
            category: attempt.category,
            message: attempt.message,
        }
    }
}

/// What somebody did.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeedView {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Who.
    pub actor: String,
    /// What, e.g. `redrive`.
    pub action: String,
    /// Why, in their words.
    pub reason: Option<String>,
}

impl From<Audited> for DeedView {
    fn from(deed: Audited) -> Self {
        Self {
            at: deed.at,
            actor: deed.actor,
            action: deed.action,
            reason: deed.reason,
        }
    }
}

/// What an order would change. Nothing was changed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// The filter, as it was understood.
    pub filter: String,
    /// So many fit.
    pub matching: i64,
    /// There are more; they were not counted to the end.
    pub more: bool,
    /// A few of them, the newest.
    pub sample: Vec<LetterView>,
}

/// An order over many dead letters, and how far it has come.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OperationView {
    /// Its number.
    pub id: i64,
    /// `redrive` or `archive`.
    pub action: String,
    /// `running`, `done` or `stopped`.
    pub state: String,
    /// When it was given; what dies later is not meant.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// By whom.
    pub actor: String,
    /// Why.
    pub reason: Option<String>,
    /// Which are meant, as the engine understands it.
    pub filter: Value,
    /// At most so many per second.
    pub rate: Option<f64>,
    /// At most so many in all.
    pub most: Option<i64>,
    /// So many have changed.
    pub changed: i64,
    /// So many fit but could not be changed: a dedupe key of theirs is in use again, they changed meanwhile, or they may
    /// be stale and nobody said `allow_stale`.
    pub skipped: i64,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
    /// Who ended it early.
    pub stopped_by: Option<String>,
}

impl From<Operation> for OperationView {
    fn from(operation: Operation) -> Self {
        let state = match (operation.finished_at, &operation.stopped_by) {
            (None, _) => "running",
            (Some(_), None) => "done",
            (Some(_), Some(_)) => "stopped",
        };
        Self {
            id: operation.id,
            action: operation.action,
            state: state.to_owned(),
            created_at: operation.created_at,
            actor: operation.actor,
            reason: operation.reason,
            filter: serde_json::to_value(&operation.filter).unwrap_or_default(),
            rate: operation.rate,
            most: operation.most,
            changed: operation.changed,
            skipped: operation.skipped,
            finished_at: operation.finished_at,
            stopped_by: operation.stopped_by,
        }
    }
}
