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
        let here = query::groups(&self.at_home(filter), filter, MOST).map(|query| (query, pool));
        let there = self
            .away(filter)
            .filter_map(|(table, pool)| Some((query::groups(&[table], filter, MOST)?, pool)));
        let mut found: Vec<Group> = Vec::new();
        for (mut query, pool) in here.into_iter().chain(there) {
            let query = query.build_query_as().persistent(false);
            found.extend(query.fetch_all(pool).await?);
        }
        // Stable: those of one database stay in the order in which it gave them.
        found.sort_by_key(|group| std::cmp::Reverse(group.count));
        found.truncate(usize::try_from(MOST).unwrap_or(usize::MAX));
        Ok(found)
    }
}
