//! The descriptor of a work table: a constant that maps the canonical columns and states to the table's own names.

use crate::{Error, Result};

/// A table whose rows are items of work. Make it a `static`; every name in it goes into SQL verbatim.
///
/// The table needs a `bigint` id, the columns of [`Columns`], an index on (due, id) over rows whose `finished` column
/// is null, and no other index or index predicate over the columns that a claim changes: state, `lease_until`, fence
/// and owner. A fillfactor of about 45 lets claims stay on their page.
#[derive(Debug)]
pub struct WorkTable {
    /// Qualified name, e.g. `postrider.outbox`.
    pub name: &'static str,
    /// Column names.
    pub columns: Columns,
    /// State names.
    pub states: States,
    /// Type of the state column: `text`, or the name of an enum.
    pub state_type: &'static str,
    /// Column that selects the handler, if the table has several kinds of items.
    pub kind: Option<&'static str>,
    /// SQL expression over the row (alias `t`) for the payload that a handler reads, as JSON.
    pub payload: &'static str,
    /// SQL expression over the row for the headers, as a JSON object.
    pub headers: Option<&'static str>,
    /// SQL expression over the row for its W3C traceparent.
    pub trace: Option<&'static str>,
    /// How items with an ordering key are kept in order.
    pub ordering: Option<OrderingKeys>,
    /// What happens to the row of a finished item.
    pub finish: Finish,
    /// Number of lost workers after which the item is dead (`WORKER_LOST`).
    pub max_losses: i16,
}

/// Names of the canonical columns.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// `bigint`, unique.
    pub id: &'static str,
    /// State.
    pub state: &'static str,
    /// `smallint` or `integer`: number of failed attempts.
    pub attempts: &'static str,
    /// `timestamptz`, not null: when the item may be claimed; infinity while parked.
    pub due: &'static str,
    /// `timestamptz`: when the lease expires.
    pub lease_until: &'static str,
    /// `bigint`: the claim's random token.
    pub fence: &'static str,
    /// `text`: the lease's owner.
    pub owner: &'static str,
    /// `smallint` or `integer`: number of expired leases.
    pub losses: &'static str,
    /// `timestamptz`: set only when the item finishes.
    pub finished: &'static str,
    /// `text`: why the item is parked. Without this column, the reason is in the audit only.
    pub parked: Option<&'static str>,
    /// `text`: code of the last failure.
    pub error_code: &'static str,
    /// `text`: category of the last failure.
    pub error_category: Option<&'static str>,
    /// `text`: message of the last failure.
    pub error_message: &'static str,
    /// `text collate "C"`: the signature of a dead item's failure; null unless the item is dead. With indexes on
    /// (cause, finished, id) and (finished, id), both where the cause is not null, dead letters are found and grouped
    /// by index alone. Without this column, they are grouped by code.
    pub cause: Option<&'static str>,
}

impl Columns {
    /// Column names of the library's own tables.
    pub const STANDARD: Self = Self {
        id: "id",
        state: "state",
        attempts: "attempts",
        due: "due",
        lease_until: "lease_until",
        fence: "fence",
        owner: "lease_owner",
        losses: "losses",
        finished: "finished_at",
        parked: Some("parked"),
        error_code: "error_code",
        error_category: Some("error_category"),
        error_message: "error_message",
        cause: Some("cause"),
    };
}

/// The table's names for the canonical states.
#[derive(Debug, Clone, Copy)]
pub struct States {
    /// Claimable when due; never failed.
    pub ready: &'static str,
    /// A worker holds it.
    pub leased: &'static str,
    /// Claimable when due; failed or was postponed before.
    pub waiting: &'static str,
    /// Finished successfully.
    pub done: &'static str,
    /// Failed permanently; a person decides.
    pub dead: &'static str,
    /// Cancelled. Without a name of its own, a cancelled item is dead with the code `CANCELLED`.
    pub cancelled: Option<&'static str>,
    /// Archived. Without a name of its own, the row moves to `postrider.archive`.
    pub archived: Option<&'static str>,
}

impl States {
    /// State names of the library's own tables.
    pub const STANDARD: Self = Self {
        ready: "ready",
        leased: "leased",
        waiting: "waiting",
        done: "done",
        dead: "dead",
        cancelled: None,
        archived: None,
    };
}

/// What happens to the row of a finished item.
#[derive(Debug, Clone, Copy)]
pub enum Finish {
    /// The row is deleted; one row of `postrider.completion` per batch records it.
    Delete,
    /// The row stays, outside the claim index.
    Keep,
    /// The row moves: these columns are copied to a history table, which should be partitioned by time.
    Move {
        /// Qualified name of the history table.
        history: &'static str,
        /// Column names, the same in both tables, separated by commas.
        columns: &'static str,
    },
}

/// Items with the same key run one after the other.
#[derive(Debug, Clone, Copy)]
pub struct OrderingKeys {
    /// Column that holds the key.
    pub column: &'static str,
    /// SQL function that takes the keys whose head was settled and returns those that must be retried.
    pub promote: &'static str,
    /// SQL function that takes a limit and returns up to that many keys that have items but no head.
    pub stranded: &'static str,
}

impl WorkTable {
    /// Descriptors are constants, not input; this catches a typo before it becomes an obscure SQL error.
    pub(super) fn validate(&self) -> Result<()> {
        let columns = &self.columns;
        let names = [
            self.name,
            self.state_type,
            columns.id,
            columns.state,
            columns.attempts,
            columns.due,
            columns.lease_until,
            columns.fence,
            columns.owner,
            columns.losses,
            columns.finished,
            columns.error_code,
            columns.error_message,
        ];
        let optional = [
            columns.parked,
            columns.error_category,
            columns.cause,
            self.kind,
            self.ordering.map(|ordering| ordering.column),
            self.ordering.map(|ordering| ordering.promote),
            self.ordering.map(|ordering| ordering.stranded),
        ];
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
        for name in names.into_iter().chain(optional.into_iter().flatten()) {
            if name.is_empty() || !name.chars().all(plain) {
                return Err(Error::invalid(
                    "work table",
                    format!(
                        "{name:?} in the descriptor of {} is not a plain SQL name",
                        self.name
                    ),
                ));
            }
        }
        let states = &self.states;
        let words = [
            states.ready,
            states.leased,
            states.waiting,
            states.done,
            states.dead,
        ];
        for word in words
            .into_iter()
            .chain(states.cancelled)
            .chain(states.archived)
        {
            if word.is_empty() || !word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(Error::invalid(
                    "work table",
                    format!(
                        "{word:?} in the descriptor of {} is not a plain state name",
                        self.name
                    ),
                ));
            }
        }
        Ok(())
    }
}
