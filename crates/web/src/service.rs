//! What the program knows about a service: one [`ServiceDescription`] and one [`Service`] per service crate.
//!
//! The console's pages and buttons, the timeline, the doctor, the metrics, the migrations and the list of error codes
//! are all built from these two. A service that exports them appears in all of those places; the program has no
//! code of its own for it. See `docs/adding-a-service.md`.

use futures_util::future::BoxFuture;
use postrider::{
    lease::{Operator, WorkTable},
    migrate::MigrationSet,
};
use postrider_inspect::{doctor::Check, gauges::Gauge, timeline::Timeline};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::{
    ErrorCode, Problem, Scope,
    error_code::codes::{INVALID_QUERY, NOT_FOUND},
    paging::{Cursor, Limit, Page, list_id},
};

/// Items on a page of the console.
const PAGE_SIZE: u64 = 25;

/// Reads a service's gauges from the database.
pub type ReadGauges = for<'a> fn(&'a PgPool) -> BoxFuture<'a, Result<Vec<Gauge>, sqlx::Error>>;

/// The fixed facts about a service.
#[derive(Debug)]
pub struct ServiceDescription {
    /// Name in URLs, filters and metrics: `orders`.
    pub name: &'static str,
    /// Title of its page: `Orders`.
    pub title: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// What the timeline calls one of its items: `order`.
    pub kind: &'static str,
    /// Every state that a listing can be filtered by.
    pub states: &'static [&'static str],
    /// Label of the listing's second filter, if it has one: `Account`.
    pub owner: Option<&'static str>,
    /// What an operator can do to one item.
    pub actions: &'static [Action],
    /// What an operator can do to the service as a whole.
    pub repair: Option<Repair>,
    /// Its schemas.
    pub migrations: fn() -> Vec<MigrationSet>,
    /// Error codes of its API.
    pub codes: &'static [ErrorCode],
    /// Its work tables.
    pub tables: &'static [&'static WorkTable],
    /// SQL functions that must accept a dead item of a table before it's redriven: `(table, function)`.
    pub redrive_guards: &'static [(&'static str, &'static str)],
    /// Invariants for the doctor.
    pub checks: &'static [Check],
    /// Reasons for which its items may stay parked without the doctor reporting it.
    pub parked_reasons: &'static [&'static str],
    /// Registers its metrics, at zero.
    pub register_metrics: fn(),
    /// Reads its gauges from the database.
    pub gauges: ReadGauges,
}

impl ServiceDescription {
    /// The action with this name.
    #[must_use]
    pub fn action(&self, name: &str) -> Option<&'static Action> {
        self.actions.iter().find(|action| action.name == name)
    }

    /// The problem for an id that the service does not know.
    #[must_use]
    pub fn unknown_item(&self) -> Problem {
        let detail = format!("No {} has this id; nothing was changed.", self.kind);
        Problem::new(&NOT_FOUND, detail)
    }
}

/// Something that an operator can do to one item.
#[derive(Debug)]
pub struct Action {
    /// Name in forms and on the command line: `cancel`.
    pub name: &'static str,
    /// Label of its button: `Cancel`.
    pub label: &'static str,
    /// What it will do, shown before it's confirmed.
    pub effect: &'static str,
    /// The scope that a caller needs.
    pub scope: Scope,
    /// States, in the timeline's words, in which it's offered.
    pub states: &'static [&'static str],
    /// Offered only while the item still has a row in a work table.
    pub needs_work_item: bool,
    /// It can't be undone.
    pub destructive: bool,
    /// A check box on the confirmation page.
    pub confirmation: Option<Confirmation>,
}

impl Action {
    /// An action of the scope `operate` that needs no check box and loses nothing.
    #[must_use]
    pub const fn new(
        name: &'static str,
        label: &'static str,
        states: &'static [&'static str],
        effect: &'static str,
    ) -> Self {
        Self {
            name,
            label,
            effect,
            scope: Scope::Operate,
            states,
            needs_work_item: false,
            destructive: false,
            confirmation: None,
        }
    }
}

/// A check box on a confirmation page.
#[derive(Debug)]
pub struct Confirmation {
    /// Its label.
    pub label: &'static str,
    /// When to tick it.
    pub hint: &'static str,
    /// The action is refused without it.
    pub required: bool,
}

/// Something that an operator can do to the service as a whole; offered while a listed item is in `state`.
#[derive(Debug)]
pub struct Repair {
    /// Label of its button.
    pub label: &'static str,
    /// What it will do.
    pub effect: &'static str,
    /// The scope that a caller needs.
    pub scope: Scope,
    /// An item in this state may need it.
    pub state: &'static str,
}

/// What a repair did.
#[derive(Debug)]
pub struct Repaired {
    /// In one sentence.
    pub summary: String,
    /// Items that it changed: id, new state, and why they needed it.
    pub items: Vec<(String, String, String)>,
    /// There is more to do: run it again.
    pub more: bool,
}

/// A running service, as the console and the timeline call it.
pub trait Service: Send + Sync + 'static {
    /// The fixed facts about it.
    fn description(&self) -> &'static ServiceDescription;

    /// What it knows about this id; empty if it doesn't know it.
    fn timeline<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<Timeline>, sqlx::Error>>;

    /// A page of its items, newest first.
    fn list<'a>(
        &'a self,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<ItemSummary>, Problem>>;

    /// What an operator should see of an item before changing it. `row` is its row in the work table, if it has one.
    fn facts<'a>(
        &'a self,
        id: &'a str,
        row: Option<&'a serde_json::Value>,
    ) -> BoxFuture<'a, Result<Vec<Fact>, Problem>>;

    /// Performs an action under the operator's name and returns a sentence about the outcome.
    fn act<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<String, Problem>>;

    /// Performs the service's [`Repair`].
    fn repair<'a>(&'a self, _operator: &'a Operator) -> BoxFuture<'a, Result<Repaired, Problem>> {
        let problem = Problem::new(&NOT_FOUND, "This service has nothing to repair.");
        Box::pin(std::future::ready(Err(problem)))
    }
}

/// An action that an operator asked for.
#[derive(Debug, Clone, Copy)]
pub struct ActionRequest<'a> {
    /// The name of the [`Action`].
    pub action: &'a str,
    /// The item.
    pub id: &'a str,
    /// The check box was ticked.
    pub confirmed: bool,
    /// Who asked, and why.
    pub operator: &'a Operator,
}

impl ActionRequest<'_> {
    /// The problem for an action that the service doesn't have.
    #[must_use]
    pub fn unknown(&self) -> Problem {
        let detail = format!("This service has no action {:?}.", self.action);
        Problem::new(&NOT_FOUND, detail)
    }
}

/// The timeline of an item that is identified by a UUID; other ids are unknown.
pub fn timeline_by_uuid<'a, F>(
    id: &str,
    find: impl FnOnce(uuid::Uuid) -> F,
) -> BoxFuture<'a, Result<Vec<Timeline>, sqlx::Error>>
where
    F: Future<Output = Result<Vec<Timeline>, sqlx::Error>> + Send + 'a,
{
    match id.parse() {
        Ok(id) => Box::pin(find(id)),
        Err(_) => Box::pin(std::future::ready(Ok(Vec::new()))),
    }
}

/// A name and a value on a confirmation page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What it is.
    pub name: &'static str,
    /// Its value; an empty one isn't shown.
    pub value: String,
}

impl Fact {
    /// A fact.
    pub fn new(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            name,
            value: value.into(),
        }
    }
}

/// What a state means to an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Ended well.
    Good,
    /// In progress.
    Busy,
    /// Waiting to be worked on.
    Waiting,
    /// Needs attention.
    Bad,
    /// Ended, and needs no attention.
    Quiet,
}

/// How much of an item is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Parts that are done.
    pub done: i64,
    /// Parts that failed.
    pub failed: i64,
    /// All parts.
    pub total: i64,
}

/// An item in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemSummary {
    /// The id or key that the timeline finds it by.
    pub id: String,
    /// What it's about.
    pub summary: String,
    /// Its state, in the service's own word.
    pub state: String,
    /// What that state means.
    pub tone: Tone,
    /// How much of it is done, if it has parts.
    pub progress: Option<Progress>,
    /// Failed attempts, where that's known.
    pub failed_attempts: i64,
    /// What went wrong, or what it waits for.
    pub remark: String,
    /// When it was accepted.
    pub accepted_at: OffsetDateTime,
}

/// Which items to list.
#[derive(Debug, Default, Deserialize)]
pub struct ListQuery {
    /// Items in this state; empty for any.
    #[serde(default)]
    pub status: String,
    /// Items of this account, merchant, …; empty for any.
    #[serde(default)]
    pub owner: String,
    /// Where the page starts.
    pub cursor: Option<Cursor>,
}

impl ListQuery {
    /// The state as the service's own type.
    ///
    /// # Errors
    /// When the service has no such state.
    pub fn status<T: DeserializeOwned>(&self) -> Result<Option<T>, Problem> {
        if self.status.is_empty() {
            return Ok(None);
        }
        let word = serde_json::Value::String(self.status.clone());
        serde_json::from_value(word).map(Some).map_err(|_| {
            Problem::new(&INVALID_QUERY, "The service has no such state.")
                .field("status", "is not a state of this service")
        })
    }

    /// The owner, if one was given.
    #[must_use]
    pub fn owner(&self) -> Option<String> {
        let owner = self.owner.trim();
        (!owner.is_empty()).then(|| owner.to_owned())
    }

    /// The number of items on a page.
    #[must_use]
    pub fn limit() -> Limit {
        Limit::new(PAGE_SIZE).unwrap_or_default()
    }

    /// The page that was asked for, by the service's own sort key.
    ///
    /// # Errors
    /// When the cursor belongs to another list.
    pub fn page<K: DeserializeOwned>(&self, service: &str) -> Result<PageRequest<K>, Problem> {
        let list = list_id(&format!("console.{service}"), &(&self.status, self.owner()))?;
        let before = self
            .cursor
            .as_ref()
            .map(|cursor| cursor.decode(&list))
            .transpose()?;
        Ok(PageRequest {
            list,
            before,
            limit: Self::limit(),
        })
    }
}

/// One page of a listing.
#[derive(Debug)]
pub struct PageRequest<K> {
    list: String,
    limit: Limit,
    /// The page starts after the item with this key.
    pub before: Option<K>,
}

impl<K: Serialize> PageRequest<K> {
    /// Rows to select: one more than the page has, to know whether there is a next page.
    #[must_use]
    pub fn rows_to_select(&self) -> i64 {
        self.limit.rows_to_fetch()
    }

    /// The page of up to that many rows.
    ///
    /// # Errors
    /// When the key can't be serialised: a bug.
    pub fn answer<T>(
        &self,
        rows: Vec<T>,
        key: impl FnOnce(&T) -> K,
        summary: impl FnMut(T) -> ItemSummary,
    ) -> Result<Page<ItemSummary>, Problem> {
        Ok(Page::from_rows(rows, self.limit, &self.list, key)?.map(summary))
    }
}
