//! Dead letters, as every door shows them; redriven and archived by one order that any process carries out.

mod view;

use postrider::{
    Error,
    dead_letter::{Action, Cursor, Order, Step},
    lease::Operator,
};
use time::OffsetDateTime;

use super::{
    Operate,
    filter::{Filter, Unreadable},
};
pub use view::{AttemptView, DeedView, GroupView, ItemView, LetterView, OperationView, Preview};

/// A preview counts up to here.
const COUNTED: i64 = 1_000_000;

/// A preview shows so many.
const SAMPLE: u32 = 10;

const NOW: &str = "select clock_timestamp()";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The filter can't be read.
    #[error(transparent)]
    Filter(#[from] Unreadable),
    /// The order asks for something that can't be.
    #[error("{field}: {problem}")]
    Value {
        /// Which part of it.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error.into())
    }
}

/// What an operator asks for, in their words.
#[derive(Debug, Clone, Default)]
pub struct Wish<'a> {
    /// Which are meant, in the filter language.
    pub filter: &'a str,
    /// At most so many per second.
    pub rate: Option<f64>,
    /// At most so many in all.
    pub most: Option<i64>,
    /// Yes, although what is redriven may be stale by now.
    pub allow_stale: bool,
}

impl Wish<'_> {
    fn check(&self) -> Result<(), Refused> {
        let wrong = |field, problem: &str| {
            let problem = problem.into();
            Err(Refused::Value { field, problem })
        };
        let rates = 0.001..=1_000_000.0;
        if self.rate.is_some_and(|rate| !rates.contains(&rate)) {
            return wrong("rate", "from 0.001 to 1000000 per second");
        }
        if self.most.is_some_and(|most| most < 1) {
            return wrong("most", "at least 1");
        }
        Ok(())
    }
}

impl Operate {
    async fn meant(&self, line: &str) -> Result<postrider::dead_letter::Filter, Refused> {
        let filter = Filter::parse(line)?;
        let now: OffsetDateTime = sqlx::query_scalar(NOW).fetch_one(&self.pool).await?;
        Ok(filter.resolve(now))
    }

    /// A page of dead letters, the newest first.
    pub async fn dead(
        &self,
        filter: &str,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<LetterView>, Refused> {
        let filter = self.meant(filter).await?;
        let found = self.letters.list(&self.pool, &filter, after, limit).await?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    /// Dead letters by cause, the most frequent first.
    pub async fn dead_groups(&self, filter: &str) -> Result<Vec<GroupView>, Refused> {
        let filter = self.meant(filter).await?;
        let groups = self.letters.groups(&self.pool, &filter).await?;
        Ok(groups.into_iter().map(Into::into).collect())
    }

    /// One item with its payload and its history, dead or not; none if there is no such row (any more).
    pub async fn item(&self, work_table: &str, id: i64) -> Result<Option<ItemView>, Refused> {
        let detail = self.letters.show(&self.pool, work_table, id).await?;
        Ok(detail.map(|detail| ItemView::new(work_table, id, detail)))
    }

    /// How many an order would change, and a few of them.
    pub async fn preview(&self, filter: &str) -> Result<Preview, Refused> {
        let meant = self.meant(filter).await?;
        let count = self.letters.count(&self.pool, &meant, COUNTED).await?;
        let sample = self.letters.list(&self.pool, &meant, None, SAMPLE).await?;
        Ok(Preview {
            filter: Filter::parse(filter)?.to_string(),
            matching: count,
            more: count == COUNTED,
            sample: sample.into_iter().map(Into::into).collect(),
        })
    }

    /// The same for an order as it would be taken.
    pub async fn preview_of(&self, wish: &Wish<'_>) -> Result<Preview, Refused> {
        wish.check()?;
        let mut preview = self.preview(wish.filter).await?;
        if let Some(most) = wish.most.filter(|most| *most <= preview.matching) {
            preview.matching = most;
            preview.more = false;
            preview
                .sample
                .truncate(usize::try_from(most).unwrap_or(usize::MAX));
        }
        Ok(preview)
    }

    /// Takes an order. What it can do at once is done when this returns; any process goes on with the rest.
    pub async fn act(
        &self,
        action: Action,
        operator: &Operator,
        wish: &Wish<'_>,
    ) -> Result<OperationView, Refused> {
        wish.check()?;
        let order = Order {
            rate: wish.rate,
            most: wish.most,
            confirmed: wish.allow_stale,
            ..Order::new(action, self.meant(wish.filter).await?)
        };
        let taken = self.letters.submit(&self.pool, operator, &order).await?;
        tracing::info!(
            by = operator.name,
            operation = taken.id,
            action = action.as_str(),
            filter = wish.filter,
            rate = wish.rate,
            reason = operator.reason,
            "dead letters are to be changed"
        );
        // The first piece at once: whoever redrives one has it done with the answer.
        let stepped = self.letters.step(&self.pool, taken.id).await;
        if matches!(stepped, Ok(Step::Done | Step::Over)) {
            self.wake();
        }
        let latest = self.letters.operation(&self.pool, taken.id).await?;
        Ok(latest.unwrap_or(taken).into())
    }

    /// Orders, the newest first.
    pub async fn operations(
        &self,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<OperationView>, Refused> {
        let found = self.letters.operations(&self.pool, before, limit).await?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    /// An order and how far it has come.
    pub async fn operation(&self, id: i64) -> Result<Option<OperationView>, Refused> {
        Ok(self
            .letters
            .operation(&self.pool, id)
            .await?
            .map(Into::into))
    }

    /// Ends an order early; what it has done stays done.
    pub async fn stop(
        &self,
        operator: &Operator,
        id: i64,
    ) -> Result<Option<OperationView>, Refused> {
        if self.letters.stop(&self.pool, operator, id).await? {
            tracing::info!(
                by = operator.name,
                operation = id,
                "an operation was stopped"
            );
        }
        self.operation(id).await
    }

    fn wake(&self) {
        crate::services::work_tables().for_each(|table| self.waker.wake(table));
    }
}
