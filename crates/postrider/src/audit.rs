//! The audit log: who changed the state of which items, and why. Append-only.

use sqlx::types::time::OffsetDateTime;
use sqlx::{PgConnection, PgPool};

use crate::lease::Operator;
use crate::{Error, Result};

const INSERT: &str = "insert into postrider.audit (actor, action, work_table, items, reason) values ($1, $2, $3, $4, $5)";

const SELECT: &str = "
select at, actor, action, reason from postrider.audit
where work_table = $1 and items @> array[$2::bigint] order by id limit 200";

/// A recorded action.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AuditRecord {
    /// When it happened.
    pub at: OffsetDateTime,
    /// Who did it.
    pub actor: String,
    /// The action.
    pub action: String,
    /// The reason given.
    pub reason: Option<String>,
}

/// Returns the actions on an item, oldest first.
pub async fn list(pool: &PgPool, work_table: &str, id: i64) -> Result<Vec<AuditRecord>> {
    Ok(sqlx::query_as(SELECT)
        .bind(work_table)
        .bind(id)
        .fetch_all(pool)
        .await?)
}

/// An action on some items.
#[derive(Debug, Clone, Copy)]
pub struct AuditEntry<'a> {
    /// The action, e.g. `redrive`.
    pub action: &'static str,
    /// The work table.
    pub table: &'static str,
    /// The items that changed.
    pub items: &'a [i64],
}

/// Records an action in the transaction that performs it. Records nothing if nothing changed.
pub async fn record(
    transaction: &mut PgConnection,
    operator: &Operator,
    entry: AuditEntry<'_>,
) -> Result<()> {
    if operator.name.trim().is_empty() {
        return Err(Error::invalid(
            "operator",
            "must not be empty: the audit needs a name",
        ));
    }
    if entry.items.is_empty() {
        return Ok(());
    }
    sqlx::query(INSERT)
        .bind(crate::failure::storable(&operator.name, 200))
        .bind(entry.action)
        .bind(entry.table)
        .bind(entry.items)
        .bind(
            operator
                .reason
                .as_deref()
                .map(|reason| crate::failure::storable(reason, 2_000)),
        )
        .execute(transaction)
        .await?;
    Ok(())
}
