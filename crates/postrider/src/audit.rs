//! The audit: who moved what out of which state, and why. Append-only.

use sqlx::types::time::OffsetDateTime;
use sqlx::{PgConnection, PgPool};

use crate::lease::Operator;
use crate::{Error, Result};

const INSERT: &str = "insert into postrider.audit (actor, action, work_table, items, reason) values ($1, $2, $3, $4, $5)";

const OF_ITEM: &str = "
select at, actor, action, reason from postrider.audit
where work_table = $1 and items @> array[$2::bigint] order by id limit 200";

/// A deed as it was written down.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Audited {
    /// When.
    pub at: OffsetDateTime,
    /// Who did it.
    pub actor: String,
    /// The verb.
    pub action: String,
    /// Why, in their words.
    pub reason: Option<String>,
}

/// What people did to an item, oldest first.
pub async fn of_item(pool: &PgPool, work_table: &str, id: i64) -> Result<Vec<Audited>> {
    Ok(sqlx::query_as(OF_ITEM)
        .bind(work_table)
        .bind(id)
        .fetch_all(pool)
        .await?)
}

/// What was done to which items.
#[derive(Debug, Clone, Copy)]
pub struct AuditEntry<'a> {
    /// The verb, e.g. `redrive`.
    pub action: &'static str,
    /// The work table.
    pub table: &'static str,
    /// The items that changed.
    pub items: &'a [i64],
}

/// Writes a deed down, in the transaction that does it. Nothing changed, nothing written.
pub async fn record(
    transaction: &mut PgConnection,
    operator: &Operator,
    deed: AuditEntry<'_>,
) -> Result<()> {
    if operator.name.trim().is_empty() {
        return Err(Error::invalid("operator", "the audit needs a name"));
    }
    if deed.items.is_empty() {
        return Ok(());
    }
    sqlx::query(INSERT)
        .bind(crate::failure::storable(&operator.name, 200))
        .bind(deed.action)
        .bind(deed.table)
        .bind(deed.items)
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
