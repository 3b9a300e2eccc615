//! What the program knows about payments: states, schemas, and how the console lists and repairs them.

use futures_util::future::BoxFuture;
use postrider::lease::Operator;
use postrider_inspect::timeline::Timeline;
use postrider_web::{
    Page, Problem, Scope,
    service::{
        ActionRequest, Fact, ItemSummary, ListQuery, Repair, Repaired, Service, ServiceDescription,
        Tone, timeline_by_uuid,
    },
};
use serde_json::Value;

use crate::{
    CHECKS, OUTBOX, Payments, WALLET_OUTBOX, codes, gauges,
    model::{PaymentView, Status},
    requests::store::Filter,
};

/// The service's description.
pub static DESCRIPTION: ServiceDescription = ServiceDescription {
    name: "payments",
    title: "Payments",
    summary: "A request and its message in one transaction; a wallet that deducts once.",
    kind: "payment",
    states: &["PENDING", "SUCCEED", "FAILED"],
    owner: Some("Account"),
    actions: &[],
    repair: Some(Repair {
        label: "Reconcile stuck payments",
        effect: "Each payment that has been pending for longer than payments.reconcile.after ends as the wallet's \
                 records say: deducted payments succeed, the others fail and can never be deducted.",
        scope: Scope::Operate,
        state: "PENDING",
    }),
    migrations: || vec![crate::migrations(), crate::wallet_migrations()],
    codes: codes::ALL,
    tables: &[&OUTBOX, &WALLET_OUTBOX],
    redrive_guards: &[],
    checks: CHECKS,
    parked_reasons: &[],
    register_metrics: gauges::register,
    gauges: |pool| Box::pin(gauges::read(pool)),
};

impl Service for Payments {
    fn description(&self) -> &'static ServiceDescription {
        &DESCRIPTION
    }

    fn timeline<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<Timeline>, sqlx::Error>> {
        timeline_by_uuid(id, |id| self.timeline(id))
    }

    fn list<'a>(
        &'a self,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<ItemSummary>, Problem>> {
        Box::pin(async move {
            let filter = Filter {
                status: query.status()?,
                account_id: query.owner(),
            };
            let cursor = query.cursor.as_ref();
            let page = self.list(&filter, cursor, ListQuery::limit()).await?;
            Ok(page.map(summary))
        })
    }

    fn facts<'a>(
        &'a self,
        _id: &'a str,
        _row: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<Fact>, Problem>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn act<'a>(&'a self, request: ActionRequest<'a>) -> BoxFuture<'a, Result<String, Problem>> {
        Box::pin(std::future::ready(Err(request.unknown())))
    }

    fn repair<'a>(&'a self, operator: &'a Operator) -> BoxFuture<'a, Result<Repaired, Problem>> {
        Box::pin(async move {
            let report = self.reconcile(operator).await?;
            let items = report.requests.iter().map(|request| {
                let state = request.status.as_str().to_owned();
                (
                    request.uuid.to_string(),
                    state,
                    request.why.as_str().to_owned(),
                )
            });
            Ok(Repaired {
                summary: format!("{} of {} settled", report.settled, report.looked_at),
                items: items.collect(),
                more: report.more,
            })
        })
    }
}

fn summary(row: PaymentView) -> ItemSummary {
    let mut summary = format!("{} {} from {}", row.amount, row.currency, row.account_id);
    if let Some(description) = &row.description {
        summary = format!("{summary}, {description}");
    }
    ItemSummary {
        id: row.uuid.to_string(),
        summary,
        state: row.status.as_str().to_owned(),
        tone: match row.status {
            Status::Succeed => Tone::Good,
            Status::Pending => Tone::Waiting,
            Status::Failed => Tone::Bad,
        },
        progress: None,
        failed_attempts: 0,
        remark: row.reason.unwrap_or_default(),
        accepted_at: row.created_at,
    }
}
