//! Operator actions on items, each recorded in `postrider.audit` in the same transaction.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Queue, statements::Text};
use crate::Result;
use crate::audit::{self, AuditEntry};

/// Who acts, and why.
#[derive(Debug, Clone)]
pub struct Operator {
    /// Name of a person or program.
    pub name: String,
    /// Reason, in the operator's own words.
    pub reason: Option<String>,
}

impl Operator {
    /// An operator who gives no reason.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            reason: None,
        }
    }

    /// Adds a reason.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

/// What a redrive or a cancellation changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redriven {
    /// The changed items; the others were in a state that doesn't allow it.
    pub ids: Vec<i64>,
    /// Ordering keys to pass to [`Queue::promote`] a little later.
    pub busy_keys: Vec<String>,
}

impl Queue {
    /// Makes dead items ready again, with fresh attempts and losses.
    pub async fn redrive(
        &self,
        transaction: &mut PgConnection,
        operator: &Operator,
        ids: &[i64],
    ) -> Result<Redriven> {
        let (ids, keys) = self
            .operate(
                transaction,
                operator,
                "redrive",
                &self.sql.redrive,
                ids,
                false,
            )
            .await?;
        let busy_keys = self.promote(transaction, &keys).await?;
        Ok(Redriven { ids, busy_keys })
    }

    /// Cancels unfinished items. A worker that holds one loses its lease.
    pub async fn cancel(
        &self,
        transaction: &mut PgConnection,
        operator: &Operator,
        ids: &[i64],
    ) -> Result<Redriven> {
        let (ids, keys) = self
            .operate(transaction, operator, "cancel", &self.sql.cancel, ids, true)
            .await?;
        let busy_keys = self.promote(transaction, &keys).await?;
        Ok(Redriven { ids, busy_keys })
    }

    /// Parks items that nobody holds: they aren't claimed until they are unparked.
    pub async fn park(
        &self,
        transaction: &mut PgConnection,
        operator: &Operator,
        ids: &[i64],
    ) -> Result<Vec<i64>> {
        let (ids, _) = self
            .operate(transaction, operator, "park", &self.sql.park, ids, true)
            .await?;
        Ok(ids)
    }

    /// Makes parked items claimable at once.
    pub async fn unpark(
        &self,
        transaction: &mut PgConnection,
        operator: &Operator,
        ids: &[i64],
    ) -> Result<Vec<i64>> {
        let (ids, _) = self
            .operate(transaction, operator, "unpark", &self.sql.unpark, ids, true)
            .await?;
        Ok(ids)
    }

    /// Archives dead items.
    pub async fn archive(
        &self,
        transaction: &mut PgConnection,
        operator: &Operator,
        ids: &[i64],
    ) -> Result<Vec<i64>> {
        let (ids, _) = self
            .operate(
                transaction,
                operator,
                "archive",
                &self.sql.archive,
                ids,
                false,
            )
            .await?;
        Ok(ids)
    }

    async fn operate(
        &self,
        transaction: &mut PgConnection,
        operator: &Operator,
        action: &'static str,
        text: &Text,
        ids: &[i64],
        takes_reason: bool,
    ) -> Result<(Vec<i64>, Vec<String>)> {
        let mut query = sqlx::query_as(AssertSqlSafe(text.clone())).bind(ids);
        if takes_reason {
            let reason = operator
                .reason
                .clone()
                .unwrap_or_else(|| format!("{action} by {}", operator.name));
            query = query.bind(reason);
        }
        let mut changed: Vec<(i64, Option<String>)> = query.fetch_all(&mut *transaction).await?;
        changed.sort_unstable();
        let (ids, keys): (Vec<i64>, Vec<Option<String>>) = changed.into_iter().unzip();
        let entry = AuditEntry {
            action,
            table: self.table.name,
            items: &ids,
        };
        audit::record(transaction, operator, entry).await?;
        Ok((ids, keys.into_iter().flatten().collect()))
    }
}
