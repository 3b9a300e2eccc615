//! Which dead letters are meant.

use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::types::time::OffsetDateTime;

/// Every part that is given must fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// Of this work table.
    pub work_table: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// With this failure code.
    pub code: Option<String>,
    /// Of this failure group (see [`super::DeadLetter::signature`]).
    pub signature: Option<String>,
    /// Given up at this time or later.
    pub since: Option<OffsetDateTime>,
    /// Given up before this time.
    pub until: Option<OffsetDateTime>,
    /// These items; needs the work table, too.
    pub ids: Option<Vec<i64>>,
}

/// The place of a dead letter in the listing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cursor {
    /// When it was given up.
    pub died_at: OffsetDateTime,
    /// Its work table.
    pub work_table: String,
    /// Its id.
    pub id: i64,
}

impl Filter {
    /// All that the database can judge; the signature is judged here (see [`Filter::fits`]).
    pub(super) fn bind<'q, T>(
        &'q self,
        query: QueryAs<'q, Postgres, T, PgArguments>,
    ) -> QueryAs<'q, Postgres, T, PgArguments> {
        query
            .bind(&self.work_table)
            .bind(&self.kind)
            .bind(&self.code)
            .bind(self.since)
            .bind(self.until)
            .bind(&self.ids)
    }

    pub(super) fn fits(&self, letter: &super::DeadLetter) -> bool {
        self.signature
            .as_ref()
            .is_none_or(|wanted| *wanted == letter.signature())
    }
}
