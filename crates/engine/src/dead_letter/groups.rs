//! Failure groups: the same cause, whatever the particulars.

use sqlx::PgPool;
use sqlx::types::time::OffsetDateTime;

use super::{DeadLetters, Filter, query};
use crate::Result;

/// More causes than this nobody reads; the rarest are left out.
const MOST: i64 = 500;

/// Dead letters with one cause.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Group {
    /// The work table.
    pub work_table: String,
    /// The kind of item.
    pub kind: String,
    /// The failure's code.
    pub code: String,
    /// What they have in common.
    pub cause: String,
    /// How many.
    pub count: i64,
    /// When the first was given up.
    pub first: OffsetDateTime,
    /// When the last was given up.
    pub last: OffsetDateTime,
    /// One of them.
    pub example: i64,
}

impl DeadLetters {
    /// The causes, the most frequent first.
    pub async fn groups(&self, pool: &PgPool, filter: &Filter) -> Result<Vec<Group>> {
        let Some(mut query) = query::groups(&self.tables(filter), filter, MOST) else {
            return Ok(Vec::new());
        };
        Ok(query
            .build_query_as()
            .persistent(false)
            .fetch_all(pool)
            .await?)
    }
}
