//! A page per service: its jobs, how far each has come, and the way to each one's timeline.

mod about;
mod act;
mod action;
mod evidence;
mod exports;
mod job;
mod orders;
mod payments;
mod protocols;
mod reconcile;

use askama::Template;
use axum::{extract::State, response::Response};
use postrider_web::{
    Cursor, Limit, Path, Problem, Query,
    error_code::codes::{INVALID_QUERY, NOT_FOUND},
    list_of,
};
use serde::{Deserialize, de::DeserializeOwned};

pub(super) use act::act;
pub(super) use action::Deed;
pub(super) use job::{Bar, Job, Listing, Tone};
pub(super) use reconcile::reconcile;

use super::{
    Console, format,
    overview::Card,
    page::{Frame, answer},
    user::User,
};

/// One of the five.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Orders,
    Payments,
    Exports,
    Evidence,
    Protocols,
}

impl Service {
    /// In the order of the bar.
    pub const ALL: [Self; 5] = [
        Self::Orders,
        Self::Payments,
        Self::Exports,
        Self::Evidence,
        Self::Protocols,
    ];

    /// The word in addresses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Payments => "payments",
            Self::Exports => "exports",
            Self::Evidence => "evidence",
            Self::Protocols => "protocols",
        }
    }

    /// The word on pages.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Orders => "Orders",
            Self::Payments => "Payments",
            Self::Exports => "Exports",
            Self::Evidence => "Evidence",
            Self::Protocols => "Protocols",
        }
    }

    /// What one of its jobs is called.
    pub const fn thing(self) -> &'static str {
        match self {
            Self::Orders => "Order",
            Self::Payments => "Payment",
            Self::Exports | Self::Evidence => "Job",
            Self::Protocols => "Protocol",
        }
    }

    /// What it does, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Orders => "Accepted once per idempotency key and sent to the trading broker.",
            Self::Payments => {
                "A request and its message in one transaction; a wallet that deducts once."
            }
            Self::Exports => "A batch of inputs in, one file per input out to the object store.",
            Self::Evidence => {
                "Files attached to dispute cases once, retried by row, summarised twice."
            }
            Self::Protocols => {
                "Clinical protocols, from text or PDF to reviewed eligibility criteria."
            }
        }
    }

    /// The states that can be asked for.
    const fn states(self) -> &'static [&'static str] {
        match self {
            Self::Orders => &["pending", "sending", "succeeded", "failed", "aborted"],
            Self::Payments => &["PENDING", "SUCCEED", "FAILED"],
            Self::Exports => &["SUBMITTED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"],
            Self::Evidence => &["PROCESSING", "RETRYING", "COMPLETED"],
            Self::Protocols => &[
                "uploaded",
                "extracting",
                "extraction_failed",
                "grounding",
                "grounding_failed",
                "pending_review",
                "complete",
                "dead_letter",
                "archived",
            ],
        }
    }

    /// Is there something on this list that a reconciliation may settle?
    fn may_be_stuck(self, listing: &Listing) -> bool {
        self == Self::Payments && listing.jobs.iter().any(|job| job.state == "PENDING")
    }

    /// The further value that can be asked for: what it is called.
    const fn owner(self) -> Option<&'static str> {
        match self {
            Self::Orders => Some("Account"),
            Self::Payments => Some("Account"),
            Self::Evidence => Some("Merchant"),
            Self::Exports | Self::Protocols => None,
        }
    }
}

/// Which jobs are wanted.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Wanted {
    /// Those that stand so.
    #[serde(default)]
    status: String,
    /// Those of this account or merchant.
    #[serde(default)]
    owner: String,
    /// Where the page begins.
    cursor: Option<Cursor>,
}

impl Wanted {
    /// The state in the service's own words.
    fn status<T: DeserializeOwned>(&self) -> Result<Option<T>, Problem> {
        if self.status.is_empty() {
            return Ok(None);
        }
        let word = serde_json::Value::String(self.status.clone());
        serde_json::from_value(word).map(Some).map_err(|_| {
            Problem::new(&INVALID_QUERY, "No job of this service stands so.")
                .field("status", "is none of the service's states")
        })
    }

    fn owner(&self) -> Option<String> {
        let owner = self.owner.trim();
        (!owner.is_empty()).then(|| owner.to_owned())
    }

    /// What a listing of these jobs is called in its cursors.
    fn list(&self, name: &str) -> Result<String, Problem> {
        list_of(name, &(&self.status, self.owner()))
    }

    /// The place behind which the page begins.
    fn before<K: DeserializeOwned>(&self, list: &str) -> Result<Option<K>, Problem> {
        self.cursor
            .as_ref()
            .map(|cursor| cursor.decode(list))
            .transpose()
    }

    /// Jobs on a page.
    fn limit() -> Limit {
        Limit::new(25).unwrap_or_default()
    }
}

#[derive(Template)]
#[template(path = "console/service.html")]
struct Page {
    frame: Frame,
    service: Service,
    status: String,
    owner: String,
    filtered: bool,
    first: bool,
    listing: Listing,
    more: Option<String>,
    card: Option<Card>,
    minutes: i64,
    step: i64,
}

/// `/services/{name}`
pub(super) async fn page(
    State(console): State<Console>,
    visitor: User,
    Path(name): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Problem> {
    let service = Service::ALL
        .into_iter()
        .find(|service| service.name() == name)
        .ok_or_else(|| {
            let names = Service::ALL.map(Service::name).join(", ");
            Problem::new(
                &NOT_FOUND,
                format!("No service has this name; there are {names}."),
            )
        })?;
    let apis = &console.apis;
    let listing = match service {
        Service::Orders => orders::list(&apis.orders, &wanted).await?,
        Service::Payments => payments::list(&apis.payments, &wanted).await?,
        Service::Exports => exports::list(&apis.exports, &wanted).await?,
        Service::Evidence => evidence::list(&apis.evidence, &wanted).await?,
        Service::Protocols => protocols::list(&apis.protocols, &wanted).await?,
    };
    let more = listing.next.as_ref().map(|cursor| {
        format!(
            "/services/{name}?status={}&owner={}&cursor={}",
            format::in_query(&wanted.status),
            format::in_query(&wanted.owner),
            format::in_query(cursor),
        )
    });
    let overview = console.operate.overview().await?;
    let card = overview.services.iter().find(|view| view.name == name);
    let card = card.map(|view| Card::of(view, &console.history.of(&name)));
    answer(&Page {
        card,
        minutes: overview.window_seconds / 60,
        step: overview.step_seconds,
        frame: Frame::new(service.title(), service.name(), &visitor),
        service,
        filtered: !wanted.status.is_empty() || !wanted.owner.is_empty(),
        first: wanted.cursor.is_none(),
        status: wanted.status,
        owner: wanted.owner,
        listing,
        more,
    })
}
