//! Failure groups: the same cause, whatever the particulars.

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgPool};

use super::{DeadLetters, Filter};
use crate::Result;

/// Distinct error texts looked at; beyond these the rarest causes are left out.
const TEXTS: i64 = 20_000;

/// Dead letters with one cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The work table.
    pub work_table: String,
    /// The kind of item.
    pub kind: String,
    /// The failure's code.
    pub code: String,
    /// What they have in common.
    pub signature: String,
    /// How many.
    pub count: i64,
    /// When the first was given up.
    pub first: OffsetDateTime,
    /// When the last was given up.
    pub last: OffsetDateTime,
    /// One of them.
    pub example: i64,
}

type Row = (
    String,
    String,
    String,
    Option<String>,
    i64,
    OffsetDateTime,
    OffsetDateTime,
    i64,
);

pub(super) fn signature(code: &str, message: Option<&str>) -> String {
    format!(
        "{code}: {}",
        crate::failure::signature(message.unwrap_or_default())
    )
}

impl DeadLetters {
    /// The causes, the most frequent first.
    pub async fn groups(&self, pool: &PgPool, filter: &Filter) -> Result<Vec<Group>> {
        let query = sqlx::query_as(AssertSqlSafe(self.sql.groups.clone()));
        let rows: Vec<Row> = filter.bind(query).bind(TEXTS).fetch_all(pool).await?;
        let mut groups: Vec<Group> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for (work_table, kind, code, message, count, first, last, example) in rows {
            let signature = signature(&code, message.as_deref());
            if filter
                .signature
                .as_ref()
                .is_some_and(|wanted| *wanted != signature)
            {
                continue;
            }
            let place = *places
                .entry((work_table.clone(), kind.clone(), signature.clone()))
                .or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => {
                    group.count += count;
                    group.first = group.first.min(first);
                    group.last = group.last.max(last);
                    group.example = group.example.max(example);
                }
                None => groups.push(Group {
                    work_table,
                    kind,
                    code,
                    signature,
                    count,
                    first,
                    last,
                    example,
                }),
            }
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        Ok(groups)
    }
}
