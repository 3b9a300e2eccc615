//! Taking in what a broker outside has delivered: into the log and to one group, each message once.

use postrider::transport::{DELIVERIES, Message};

use sqlx::{Postgres, Transaction};

use super::PostgresTransport;
use super::publish::Columns;

/// See migration 0206.
const TAKE_IN: &str = "select postrider.take_in($1, $2, $3, $4, $5, $6, $7)";
const BACKLOG: &str = "
select count(*) from (
    select from postrider.delivery where consumer_group = $1 and finished_at is null limit $2) unfinished";
const GROUPS: &str = "
select topic, consumer_group from postrider.subscription where topic = any($1) order by topic, consumer_group";

const DECLARING: &str = "select pg_advisory_xact_lock(hashtextextended($1 || ' ' || $2, 7313))";

impl PostgresTransport {
    /// Nobody else declares this pair to a broker as long as this transaction is open.
    pub(crate) async fn declaring(
        &self,
        topic: &str,
        group: &str,
    ) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        let mut transaction = self.side.begin().await?;
        sqlx::query(DECLARING)
            .bind(topic)
            .bind(group)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction)
    }

    /// Stores these messages for the group, in their order; how many were new to it. Theirs for good once this returns.
    pub(crate) async fn take_in(&self, group: &str, batch: &[Message]) -> Result<u64, sqlx::Error> {
        let columns = Columns::of(batch);
        let taken: i64 = sqlx::query_scalar(TAKE_IN)
            .bind(group)
            .bind(columns.ids)
            .bind(columns.topics)
            .bind(columns.keys)
            .bind(columns.payloads)
            .bind(columns.headers)
            .bind(columns.traces)
            .fetch_one(&self.pool)
            .await?;
        if taken > 0 {
            self.waker.wake(&DELIVERIES);
        }
        Ok(taken.unsigned_abs())
    }

    /// How many messages the group has not finished; counted up to `most`.
    pub(crate) async fn backlog(&self, group: &str, most: u32) -> Result<u64, sqlx::Error> {
        let count: i64 = sqlx::query_scalar(BACKLOG)
            .bind(group)
            .bind(i64::from(most))
            .fetch_one(&self.pool)
            .await?;
        Ok(count.unsigned_abs())
    }

    /// Who subscribed to these topics, as far as this database knows: topic and group.
    pub(crate) async fn subscriptions(
        &self,
        topics: &[&str],
    ) -> Result<Vec<(String, String)>, sqlx::Error> {
        sqlx::query_as(GROUPS)
            .bind(topics)
            .fetch_all(&self.pool)
            .await
    }
}
