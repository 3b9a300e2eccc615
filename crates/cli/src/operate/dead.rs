//! Dead letters: listing, preview, and redrive and archive operations that any process runs.

mod view;

use postrider::{
    Error,
    dead_letter::{Action, Cursor, OperationRequest, Step},
    lease::Operator,
};
use time::OffsetDateTime;

use super::{
    Operate,
    filter::{Filter, FilterError},
};
pub use view::{AttemptView, AuditView, GroupView, ItemView, LetterView, OperationView, Preview};

/// A preview counts up to this number.
const MAX_COUNT: i64 = 1_000_000;

/// Number of dead letters in a preview.
const SAMPLE_SIZE: u32 = 10;

const NOW: &str = "select clock_timestamp()";

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A value is invalid.
    #[error("{field}: {problem}")]
    Value {
        /// The field.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The database failed.
    #[error(transparent)]
    Library(#[from] Error),
}

impl From<sqlx::Error> for OperateError {
    fn from(error: sqlx::Error) -> Self {
        Self::Library(error.into())
    }
}

/// A request to change dead letters.
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    /// Which dead letters, in the filter language.
    pub filter: &'a str,
    /// Maximum rate, per second.
    pub rate: Option<f64>,
    /// Maximum number of dead letters.
    pub limit: Option<i64>,
    /// Redrive items that may be stale, too.
    pub allow_stale: bool,
}

impl Request<'_> {
    fn check(&self) -> Result<(), OperateError> {
        let invalid = |field, problem: &str| {
            let problem = problem.into();
            Err(OperateError::Value { field, problem })
        };
        let rates = 0.001..=1_000_000.0;
        if self.rate.is_some_and(|rate| !rates.contains(&rate)) {
            return invalid("rate", "must be from 0.001 to 1000000 per second");
        }
        if self.limit.is_some_and(|limit| limit < 1) {
            return invalid("most", "must be at least 1");
        }
        Ok(())
    }
}

impl Operate {
    async fn resolve(&self, line: &str) -> Result<postrider::dead_letter::Filter, OperateError> {
        let filter = Filter::parse(line)?;
        let now: OffsetDateTime = sqlx::query_scalar(NOW).fetch_one(&self.pool).await?;
        Ok(filter.resolve(now))
    }

    /// A page of dead letters, newest first.
    pub async fn dead(
        &self,
        filter: &str,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<LetterView>, OperateError> {
        let filter = self.resolve(filter).await?;
        let found = self.letters.list(&self.pool, &filter, after, limit).await?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    /// Dead letters by cause, most frequent first.
    pub async fn dead_groups(&self, filter: &str) -> Result<Vec<GroupView>, OperateError> {
        let filter = self.resolve(filter).await?;
        let groups = self.letters.groups(&self.pool, &filter).await?;
        Ok(groups.into_iter().map(Into::into).collect())
    }

    /// One item with its payload and history, dead or not; none if its row does not exist (any more).
    pub async fn item(&self, work_table: &str, id: i64) -> Result<Option<ItemView>, OperateError> {
        let detail = self.letters.show(&self.pool, work_table, id).await?;
        Ok(detail.map(|detail| ItemView::new(work_table, id, detail)))
    }

    /// What an operation with this filter would change.
    pub async fn preview(&self, filter: &str) -> Result<Preview, OperateError> {
        let resolved = self.resolve(filter).await?;
        let count = self.letters.count(&self.pool, &resolved, MAX_COUNT).await?;
        let sample = self
            .letters
            .list(&self.pool, &resolved, None, SAMPLE_SIZE)
            .await?;
        Ok(Preview {
            filter: Filter::parse(filter)?.to_string(),
            matching: count,
            more: count == MAX_COUNT,
            sample: sample.into_iter().map(Into::into).collect(),
        })
    }

    /// What this request would change.
    pub async fn preview_request(&self, request: &Request<'_>) -> Result<Preview, OperateError> {
        request.check()?;
        let mut preview = self.preview(request.filter).await?;
        if let Some(limit) = request.limit.filter(|limit| *limit <= preview.matching) {
            preview.matching = limit;
            preview.more = false;
            preview
                .sample
                .truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Ok(preview)
    }

    /// Submits an operation and runs its first batch; any process continues with the rest.
    pub async fn submit(
        &self,
        action: Action,
        operator: &Operator,
        request: &Request<'_>,
    ) -> Result<OperationView, OperateError> {
        request.check()?;
        let order = OperationRequest {
            rate: request.rate,
            limit: request.limit,
            confirmed: request.allow_stale,
            ..OperationRequest::new(action, self.resolve(request.filter).await?)
        };
        let submitted = self.letters.submit(&self.pool, operator, &order).await?;
        tracing::info!(
            by = operator.name,
            operation = submitted.id,
            action = action.as_str(),
            filter = request.filter,
            rate = request.rate,
            reason = operator.reason,
            "operation on dead letters submitted"
        );
        // Run the first batch now: redriving a single item is done with the response.
        let stepped = self.letters.step(&self.pool, submitted.id).await;
        if matches!(stepped, Ok(Step::Progressed | Step::Finished)) {
            self.wake();
        }
        let latest = self.letters.operation(&self.pool, submitted.id).await?;
        Ok(latest.unwrap_or(submitted).into())
    }

    /// Operations, newest first.
    pub async fn operations(
        &self,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<OperationView>, OperateError> {
        let found = self.letters.operations(&self.pool, before, limit).await?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    /// An operation and its progress.
    pub async fn operation(&self, id: i64) -> Result<Option<OperationView>, OperateError> {
        Ok(self
            .letters
            .operation(&self.pool, id)
            .await?
            .map(Into::into))
    }

    /// Stops an operation; what it has changed stays changed.
    pub async fn stop(
        &self,
        operator: &Operator,
        id: i64,
    ) -> Result<Option<OperationView>, OperateError> {
        if self.letters.stop(&self.pool, operator, id).await? {
            tracing::info!(by = operator.name, operation = id, "operation stopped");
        }
        self.operation(id).await
    }

    fn wake(&self) {
        crate::services::work_tables().for_each(|table| self.waker.wake(table));
    }
}
