//! Groups of dead letters with the same cause.

use sqlx::PgPool;
use sqlx::types::time::OffsetDateTime;

use super::{DeadLetters, Filter, query};
use crate::Result;

/// Maximum number of groups; the rarest are left out.
const MAX_GROUPS: i64 = 500;

/// Dead letters with one cause.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Group {
    /// Work table.
    pub work_table: String,
    /// Kind of item.
    pub kind: String,
    /// Failure code.
    pub code: String,
    /// Common cause.
    pub cause: String,
    /// Number of dead letters.
    pub count: i64,
    /// When the first was marked dead.
    pub first: OffsetDateTime,
    /// When the last was marked dead.
    pub last: OffsetDateTime,
    /// Id of one of them.
    pub example: i64,
}

impl DeadLetters {
    /// Groups by cause, most frequent first.
    pub async fn groups(&self, pool: &PgPool, filter: &Filter) -> Result<Vec<Group>> {
        let here = query::groups(&self.local_tables(filter), filter, MAX_GROUPS)
            .map(|query| (query, pool));
        let there = self
            .remote_tables(filter)
            .filter_map(|(table, pool)| Some((query::groups(&[table], filter, MAX_GROUPS)?, pool)));
        let mut found: Vec<Group> = Vec::new();
        for (mut query, pool) in here.into_iter().chain(there) {
            let query = query.build_query_as().persistent(false);
            found.extend(query.fetch_all(pool).await?);
        }
        // Stable: groups of one database stay in its order.
        found.sort_by_key(|group| std::cmp::Reverse(group.count));
        found.truncate(usize::try_from(MAX_GROUPS).unwrap_or(usize::MAX));
        Ok(found)
    }
}
