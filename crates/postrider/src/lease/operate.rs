//! What a person may do to items: each a named deed, each written to `postrider.audit` in the same transaction.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Queue, statements::Text};
use crate::Result;
use crate::audit::{self, AuditEntry};

/// Who acts, and why.
#[derive(Debug, Clone)]
pub struct Operator {
    /// A person's or a program's name.
    pub name: String,
    /// Why, in their words.
    pub reason: Option<String>,
}

impl Operator {
    /// Somebody who gives no reason.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            reason: None,
        }
    }

    /// With a reason.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

/// What a redrive or a cancellation changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redriven {
    /// The items that changed; the others were not in a state that allows it.
    pub ids: Vec<i64>,
    /// Ordering keys to hand to [`Queue::promote`] a little later.
    pub busy_keys: Vec<String>,
}

impl Queue {
    /// Dead items begin anew with fresh attempts and losses.
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

    /// Unfinished items are called off. A worker that holds one finds its lease lost.
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

    /// Items that nobody holds now are not claimed until they are unparked.
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

    /// Parked items may be claimed again, at once.
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

    /// Dead items are laid to rest.
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
        let deed = AuditEntry {
            action,
            table: self.table.name,
            items: &ids,
        };
        audit::record(transaction, operator, deed).await?;
        Ok((ids, keys.into_iter().flatten().collect()))
    }
}
