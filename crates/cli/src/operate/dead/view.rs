//! Dead letters, groups and operations as the API shows them.

use postrider::{
    audit::AuditRecord,
    dead_letter::{Cursor, DeadLetter, Detail, Group, Operation},
    internal::attempts::Attempt,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::services;

/// A dead letter.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LetterView {
    /// Its work table.
    #[schema(example = "orders.outbox_orders")]
    pub work_table: String,
    /// Its id in that table.
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
    /// Code and message without details; the same for all of a group.
    pub cause: String,
    /// Failed attempts.
    pub attempts: i32,
    /// Lost workers.
    pub losses: i32,
    /// When it failed for the last time.
    #[serde(with = "time::serde::rfc3339")]
    pub died_at: OffsetDateTime,
}

impl LetterView {
    /// The cursor of the next page.
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

/// Dead letters with the same cause.
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
    /// Their cause; in a filter `cause:"…"`.
    pub cause: String,
    /// Number of dead letters.
    pub count: i64,
    /// When the first one failed.
    #[serde(with = "time::serde::rfc3339")]
    pub first: OffsetDateTime,
    /// When the last one failed.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
    /// The id of one of them.
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
    /// Its id in that table.
    pub id: i64,
    /// The service that it belongs to.
    pub service: String,
    /// It is dead. A redriven item is shown too, as long as its row exists.
    pub dead: bool,
    /// Its row.
    pub row: Value,
    /// The handler's input.
    pub payload: Value,
    /// Attempts, oldest first; a success on the first attempt leaves no entry.
    pub attempts: Vec<AttemptView>,
    /// Audit entries, oldest first.
    pub audit: Vec<AuditView>,
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
    /// Its number, from 1.
    pub attempt: i32,
    /// The worker.
    pub worker: String,
    /// When it started.
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

/// An audited action.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The operator.
    pub actor: String,
    /// The action, e.g. `redrive`.
    pub action: String,
    /// The reason.
    pub reason: Option<String>,
}

impl From<AuditRecord> for AuditView {
    fn from(entry: AuditRecord) -> Self {
        Self {
            at: entry.at,
            actor: entry.actor,
            action: entry.action,
            reason: entry.reason,
        }
    }
}

/// What an operation would change. Nothing was changed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// The filter in canonical form.
    pub filter: String,
    /// Number of matching dead letters.
    pub matching: i64,
    /// There are more than `matching`.
    pub more: bool,
    /// The newest of them.
    pub sample: Vec<LetterView>,
}

/// A redrive or archive operation and its progress.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OperationView {
    /// Its id.
    pub id: i64,
    /// `redrive` or `archive`.
    pub action: String,
    /// `running`, `done` or `stopped`.
    pub state: String,
    /// When it was submitted; later dead letters are not included.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// The operator.
    pub actor: String,
    /// The reason.
    pub reason: Option<String>,
    /// The filter.
    pub filter: Value,
    /// Maximum rate, per second.
    pub rate: Option<f64>,
    /// Maximum number of dead letters.
    pub most: Option<i64>,
    /// Number changed so far.
    pub changed: i64,
    /// Number of matching dead letters that could not be changed: their unique key is in use again, they changed
    /// meanwhile, or they may be stale and `allow_stale` was not set.
    pub skipped: i64,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
    /// The operator who stopped it.
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
            most: operation.limit,
            changed: operation.changed,
            skipped: operation.skipped,
            finished_at: operation.finished_at,
            stopped_by: operation.stopped_by,
        }
    }
}
