//! Tables in another database: each is read and changed where it is.
//!
//! Such a database has the library's schema, too, so attempts, audit and archive of the table are next to it.
//! Operations on dead letters are recorded in the local database, whichever tables they cover.

use sqlx::PgPool;

use super::{DeadLetters, Filter};
use crate::lease::{Queue, WorkTable};

impl DeadLetters {
    /// Adds a table that lives in the database of this pool.
    #[must_use]
    pub fn with_remote(mut self, work_table: &'static str, pool: PgPool) -> Self {
        self.remote.push((work_table, pool));
        self
    }

    /// The database of this table; None if it is local.
    #[must_use]
    pub fn remote_pool(&self, work_table: &str) -> Option<&PgPool> {
        self.remote
            .iter()
            .find(|(table, _)| *table == work_table)
            .map(|(_, pool)| pool)
    }

    /// Local tables that match the filter.
    pub(super) fn local_tables(&self, filter: &Filter) -> Vec<&'static WorkTable> {
        self.matching(filter)
            .filter(|table| self.remote_pool(table.name).is_none())
            .collect()
    }

    /// Remote tables that match the filter. A database without a match isn't contacted.
    pub(super) fn remote_tables(
        &self,
        filter: &Filter,
    ) -> impl Iterator<Item = (&'static WorkTable, &PgPool)> {
        self.matching(filter)
            .filter_map(|table| Some((table, self.remote_pool(table.name)?)))
    }

    fn matching(&self, filter: &Filter) -> impl Iterator<Item = &'static WorkTable> {
        self.queues
            .iter()
            .map(Queue::table)
            .filter(|table| filter.matches(table.name))
    }
}
