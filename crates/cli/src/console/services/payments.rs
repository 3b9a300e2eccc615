//! Payments as rows.

use postrider_payments::{
    Payments,
    model::{PaymentView, Status},
    store::Filter,
};
use postrider_web::Problem;

use super::{Job, Listing, Tone, Wanted};

const LIST: &str = "console.payments";

pub(super) async fn list(payments: &Payments, wanted: &Wanted) -> Result<Listing, Problem> {
    let filter = Filter {
        status: wanted.status()?,
        account_id: wanted.owner(),
    };
    let list = wanted.list(LIST)?;
    let (before, limit) = (wanted.before(&list)?, Wanted::limit());
    let rows = payments.list(&filter, before, limit.to_select()).await?;
    Listing::cut(rows, limit, &list, |(place, _)| *place, |(_, row)| job(row))
}

fn job(row: PaymentView) -> Job {
    let mut about = format!("{} {} from {}", row.amount, row.currency, row.account_id);
    if let Some(description) = &row.description {
        about = format!("{about}, {description}");
    }
    Job {
        id: row.uuid.to_string(),
        about,
        state: row.status.as_str().to_owned(),
        tone: match row.status {
            Status::Succeed => Tone::Good,
            Status::Pending => Tone::Waiting,
            Status::Failed => Tone::Bad,
        },
        bar: None,
        attempts: 0,
        note: row.reason.unwrap_or_default(),
        at: row.created_at.into(),
    }
}
