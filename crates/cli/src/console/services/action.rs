//! What a person may do to one job, whatever the service: listed once, offered by state, and done the same way.

use postrider::lease::Operator;
use postrider_orders::model::key as order_key;
use postrider_protocols::model::Decision;
use postrider_web::{Problem, error_code::codes::NOT_FOUND};
use uuid::Uuid;

use super::{super::format, Service};
use crate::{operate::trace::Subject, services::Apis};

/// One thing that can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Deed {
    CancelOrder,
    RedriveOrder,
    CancelExport,
    RedriveExport,
    RetryEvidence,
    RetryProtocol,
    ApproveProtocol,
    RejectProtocol,
}

/// A box on the form.
pub(in super::super) struct Tick {
    /// What ticking it says.
    pub says: &'static str,
    /// Why one would.
    pub about: &'static str,
    /// Nothing is done without it.
    pub needed: bool,
}

impl Deed {
    const ALL: [Self; 8] = [
        Self::CancelOrder,
        Self::RedriveOrder,
        Self::CancelExport,
        Self::RedriveExport,
        Self::RetryEvidence,
        Self::RetryProtocol,
        Self::ApproveProtocol,
        Self::RejectProtocol,
    ];

    /// The deed that a form names.
    pub fn read(service: &str, word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|deed| deed.service().name() == service && deed.word() == word)
    }

    /// What can be done to this as it stands.
    pub fn offered(subject: &Subject) -> impl Iterator<Item = Self> + '_ {
        Self::ALL.into_iter().filter(|deed| deed.suits(subject))
    }

    fn suits(self, subject: &Subject) -> bool {
        let service = self.service();
        // An order whose row was cleaned away is history: nothing is left that could be changed.
        let is_history = service == Service::Orders && subject.items.is_empty();
        subject.service == service.name()
            && subject.kind == self.kind()
            && self.states().contains(&subject.state.as_str())
            && !is_history
    }

    /// Whose job it is done to.
    pub const fn service(self) -> Service {
        match self {
            Self::CancelOrder | Self::RedriveOrder => Service::Orders,
            Self::CancelExport | Self::RedriveExport => Service::Exports,
            Self::RetryEvidence => Service::Evidence,
            Self::RetryProtocol | Self::ApproveProtocol | Self::RejectProtocol => {
                Service::Protocols
            }
        }
    }

    /// What a timeline calls such a job.
    pub const fn kind(self) -> &'static str {
        match self.service() {
            Service::Orders => "order",
            Service::Payments => "payment",
            Service::Exports => "export job",
            Service::Evidence => "file job",
            Service::Protocols => "protocol",
        }
    }

    /// The word in forms, the same as on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CancelOrder | Self::CancelExport => "cancel",
            Self::RedriveOrder | Self::RedriveExport => "redrive",
            Self::RetryEvidence | Self::RetryProtocol => "retry",
            Self::ApproveProtocol => "approve",
            Self::RejectProtocol => "reject",
        }
    }

    /// The word on buttons.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::CancelOrder | Self::CancelExport => "Cancel",
            Self::RedriveOrder | Self::RedriveExport => "Redrive",
            Self::RetryEvidence | Self::RetryProtocol => "Retry",
            Self::ApproveProtocol => "Approve",
            Self::RejectProtocol => "Reject",
        }
    }

    /// How a timeline says that a job stands so that this can be done.
    const fn states(self) -> &'static [&'static str] {
        match self {
            Self::CancelOrder => &["pending", "sending", "failed"],
            Self::RedriveOrder => &["aborted"],
            Self::CancelExport => &["SUBMITTED", "RUNNING"],
            Self::RedriveExport => &["FAILED"],
            Self::RetryEvidence => &["open", "being retried"],
            Self::RetryProtocol => &["extraction_failed", "grounding_failed", "dead_letter"],
            Self::ApproveProtocol | Self::RejectProtocol => &["pending_review"],
        }
    }

    /// Is something lost by it?
    pub const fn is_loss(self) -> bool {
        matches!(
            self,
            Self::CancelOrder | Self::CancelExport | Self::RejectProtocol
        )
    }

    /// What it would do.
    pub const fn means(self) -> &'static str {
        match self {
            Self::CancelOrder => {
                "The broker never gets it, and it can't be redriven. One that may have reached the broker stays as it is."
            }
            Self::RedriveOrder => {
                "It is sent with fresh attempts. Mend the cause first, or it is aborted again."
            }
            Self::CancelExport => {
                "What is running finishes and keeps its file; nothing else is begun, and it can't be redriven."
            }
            Self::RedriveExport => {
                "Its failed inputs begin anew with fresh attempts and what was not begun goes on; files that are there stay."
            }
            Self::RetryEvidence => {
                "What failed and is due is tried again now. Permanent failures and used-up attempts stay as they are."
            }
            Self::RetryProtocol => {
                "It begins anew with the extraction; what is left of the old try is called off."
            }
            Self::ApproveProtocol => "The criteria are right: the protocol is complete.",
            Self::RejectProtocol => {
                "The criteria are not right: they are thrown away, and it goes back to the extraction."
            }
        }
    }

    /// What else can be said on the form.
    pub const fn tick(self) -> Option<Tick> {
        match self {
            Self::RedriveOrder => Some(Tick {
                says: "Send it although it may be stale",
                about: "The market may have moved on since.",
                needed: true,
            }),
            Self::RetryEvidence => Some(Tick {
                says: "Also what is not due yet",
                about: "Its pauses are cut short.",
                needed: false,
            }),
            _ => None,
        }
    }

    /// Does it, and says what came of it.
    pub async fn perform(
        self,
        apis: &Apis,
        id: &str,
        ticked: bool,
        operator: &Operator,
    ) -> Result<String, Problem> {
        match self {
            Self::CancelOrder => {
                let key = order_key(id).map_err(|_| self.unknown())?;
                apis.orders.cancel(&key, operator).await?;
                Ok("It is called off: the broker never gets it.".to_owned())
            }
            Self::RedriveOrder => {
                let key = order_key(id).map_err(|_| self.unknown())?;
                apis.orders.redrive(&key, operator).await?;
                Ok("It begins anew and is sent as soon as a worker is free.".to_owned())
            }
            Self::CancelExport => {
                apis.exports.cancel(id, operator).await?;
                Ok("It is called off: what is running finishes, nothing else is begun.".to_owned())
            }
            Self::RedriveExport => Ok(match apis.exports.redrive(id, operator).await? {
                0 => "What was parked goes on; no failed input was left.".to_owned(),
                1 => "One input begins anew.".to_owned(),
                many => format!("{} inputs begin anew.", many),
            }),
            Self::RetryEvidence => {
                let id = self.uuid(id)?;
                let retried = apis.evidence.retry(id, ticked, operator).await?;
                let waiting = format::count(retried.waiting);
                Ok(match retried.scheduled_artifacts {
                    1 => format!("1 file is tried again; {waiting} wait for their time."),
                    many => format!("{many} files are tried again; {waiting} wait for their time."),
                })
            }
            Self::RetryProtocol => {
                apis.protocols.retry(self.uuid(id)?, operator).await?;
                Ok("It begins anew with the extraction.".to_owned())
            }
            Self::ApproveProtocol => {
                let id = self.uuid(id)?;
                apis.protocols
                    .review(id, Decision::Approve, operator)
                    .await?;
                Ok("It is complete.".to_owned())
            }
            Self::RejectProtocol => {
                let id = self.uuid(id)?;
                apis.protocols
                    .review(id, Decision::Reject, operator)
                    .await?;
                Ok("It goes back to the extraction.".to_owned())
            }
        }
    }

    fn uuid(self, id: &str) -> Result<Uuid, Problem> {
        id.parse().map_err(|_| self.unknown())
    }

    /// There is no such job.
    pub fn unknown(self) -> Problem {
        let detail = format!("No {} is known by this id; nothing was done.", self.kind());
        Problem::new(&NOT_FOUND, detail)
    }
}
