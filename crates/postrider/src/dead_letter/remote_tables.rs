//! Tables that are in another database than the others: each is asked and changed where it is.
//!
//! A database of its own has the engine's schema, too, so attempts, audit and archive of such a table are beside it. Orders
//! over dead letters are kept at home, whichever tables they mean.

use sqlx::PgPool;

use super::{DeadLetters, Filter};
use crate::lease::{Queue, WorkTable};

impl DeadLetters {
    /// This table is in the database of this pool.
    #[must_use]
    pub fn with_remote(mut self, work_table: &'static str, pool: PgPool) -> Self {
        self.elsewhere.push((work_table, pool));
        self
    }

    /// The database of this table; none if it is at home.
    #[must_use]
    pub fn place(&self, work_table: &str) -> Option<&PgPool> {
        self.elsewhere
            .iter()
            .find(|(table, _)| *table == work_table)
            .map(|(_, pool)| pool)
    }

    /// The tables at home that the filter leaves.
    pub(super) fn at_home(&self, filter: &Filter) -> Vec<&'static WorkTable> {
        self.wanted(filter)
            .filter(|table| self.place(table.name).is_none())
            .collect()
    }

    /// The tables elsewhere that the filter leaves. A filter that leaves none of a database does not ask it.
    pub(super) fn away(
        &self,
        filter: &Filter,
    ) -> impl Iterator<Item = (&'static WorkTable, &PgPool)> {
        self.wanted(filter)
            .filter_map(|table| Some((table, self.place(table.name)?)))
    }

    fn wanted(&self, filter: &Filter) -> impl Iterator<Item = &'static WorkTable> {
        self.queues
            .iter()
            .map(Queue::table)
            .filter(|table| filter.wants(table.name))
    }
}
