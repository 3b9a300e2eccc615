//! The descriptor of a work table: a constant that maps the canonical columns and states to the table's own names.

use crate::{Error, Result};

/// A table whose rows are items of work. Make it a `static`; every name in it ends up in SQL as it stands.
///
/// The table needs a `bigint` id, the columns of [`Columns`], an index on (due, id) over rows whose `finished` column
/// is null, and no other index or index predicate over the columns that a claim changes: state, `lease_until`,
/// fence and owner. A fillfactor of about 45 lets claims stay on their page.
#[derive(Debug)]
pub struct WorkTable {
    /// With its schema, e.g. `postrider.outbox`.
    pub name: &'static str,
    /// The columns' names.
    pub columns: Columns,
    /// The states' names.
    pub states: States,
    /// The state column's type: `text`, or an enumeration's name.
    pub state_type: &'static str,
    /// The column that chooses the handler, if items are of several kinds.
    pub kind: Option<&'static str>,
    /// An SQL expression over the row (alias `t`) for what a handler reads, as JSON.
    pub payload: &'static str,
    /// An SQL expression over the row for headers, as a JSON object.
    pub headers: Option<&'static str>,
    /// An SQL expression over the row for its W3C traceparent.
    pub trace: Option<&'static str>,
    /// How items that must go out in order are kept in order.
    pub ordering: Option<OrderingKeys>,
    /// What becomes of an item that is done.
    pub finish: Finish,
    /// So many lost workers, and the item is dead (`WORKER_LOST`).
    pub max_losses: i16,
}

/// The names of the canonical columns.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// `bigint`, unique.
    pub id: &'static str,
    /// The state.
    pub state: &'static str,
    /// `smallint` or `integer`: handled outcomes that failed.
    pub attempts: &'static str,
    /// `timestamptz`, not null: when it may be claimed; infinity while parked.
    pub due: &'static str,
    /// `timestamptz`: until when it is leased.
    pub lease_until: &'static str,
    /// `bigint`: the claim's random token.
    pub fence: &'static str,
    /// `text`: who holds the lease.
    pub owner: &'static str,
    /// `smallint` or `integer`: how often a lease ran out.
    pub losses: &'static str,
    /// `timestamptz`: set by finishing alone.
    pub finished: &'static str,
    /// `text`: why it is parked; without this column the reason is in the audit alone.
    pub parked: Option<&'static str>,
    /// `text`: the last failure's code.
    pub error_code: &'static str,
    /// `text`: its category.
    pub error_category: Option<&'static str>,
    /// `text`: its message.
    pub error_message: &'static str,
    /// `text collate "C"`: what a dead item has in common with others (its failure's signature); null unless it is dead.
    /// With an index on (cause, finished, id) and one on (finished, id), both where the cause is not null, dead letters
    /// are found and grouped without a look at anything else. Without this column they are grouped by their code.
    pub cause: Option<&'static str>,
}

impl Columns {
    /// The names that the engine's own tables use.
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

/// The table's words for the canonical states.
#[derive(Debug, Clone, Copy)]
pub struct States {
    /// May be claimed when due; never failed.
    pub ready: &'static str,
    /// Somebody works on it.
    pub leased: &'static str,
    /// May be claimed when due; failed before, or was put off.
    pub waiting: &'static str,
    /// Finished well.
    pub done: &'static str,
    /// Given up; a person decides.
    pub dead: &'static str,
    /// Called off. Without a word of its own, a cancelled item is dead with the code `CANCELLED`.
    pub cancelled: Option<&'static str>,
    /// Dead and laid to rest. Without a word of its own, the row moves to `postrider.archive`.
    pub archived: Option<&'static str>,
}

impl States {
    /// The words that the engine's own tables use.
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

/// What becomes of an item that is done.
#[derive(Debug, Clone, Copy)]
pub enum Finish {
    /// The row goes; one line of `postrider.completion` per batch says so.
    Delete,
    /// The row stays, outside the claim index.
    Keep,
    /// The row moves: these columns are copied to this table, which should be partitioned by time.
    Move {
        /// With its schema.
        history: &'static str,
        /// Their names, the same in both tables, separated by commas.
        columns: &'static str,
    },
}

/// Items of one key go out one after the other.
#[derive(Debug, Clone, Copy)]
pub struct OrderingKeys {
    /// The column that holds the key.
    pub column: &'static str,
    /// An SQL function that takes the keys whose head was settled and returns those that must be tried again.
    pub promote: &'static str,
    /// An SQL function that takes a number and returns up to so many keys that have items but no head.
    pub stranded: &'static str,
}

impl WorkTable {
    /// The table's name without its schema.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// Descriptors are constants, not input; this catches a slip of the pen before it becomes a strange SQL error.
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
                        "{name:?} in the descriptor of {} is no plain SQL name",
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
                        "{word:?} in the descriptor of {} is no plain state",
                        self.name
                    ),
                ));
            }
        }
        Ok(())
    }
}
