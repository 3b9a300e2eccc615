//! Storing what a broker delivered: in the log and for one group, each message once.

use postrider::transport::{DELIVERIES, Message};
use sqlx::{Postgres, Transaction};

use super::PostgresTransport;
use super::publish::Columns;

const STORE_INCOMING: &str = "select postrider.take_in($1, $2, $3, $4, $5, $6, $7)";
const BACKLOG: &str = "
select count(*) from (
    select from postrider.delivery where consumer_group = $1 and finished_at is null limit $2) unfinished";
const SUBSCRIPTIONS: &str = "
select topic, consumer_group from postrider.subscription where topic = any($1) order by topic, consumer_group";
const LOCK_DECLARATION: &str =
    "select pg_advisory_xact_lock(hashtextextended($1 || ' ' || $2, 7313))";

impl PostgresTransport {
    /// While this transaction is open, nobody else declares this pair at a broker.
    pub(crate) async fn lock_declaration(
        &self,
        topic: &str,
        group: &str,
    ) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        let mut transaction = self.reserved.begin().await?;
        sqlx::query(LOCK_DECLARATION)
            .bind(topic)
            .bind(group)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction)
    }

    /// Stores these messages for the group, in their order. Returns how many are new to it. Durable once this returns.
    pub(crate) async fn store_incoming(
        &self,
        group: &str,
        batch: &[Message],
    ) -> Result<u64, sqlx::Error> {
        let columns = Columns::new(batch);
        let new: i64 = sqlx::query_scalar(STORE_INCOMING)
            .bind(group)
            .bind(columns.ids)
            .bind(columns.topics)
            .bind(columns.keys)
            .bind(columns.payloads)
            .bind(columns.headers)
            .bind(columns.traces)
            .fetch_one(&self.pool)
            .await?;
        if new > 0 {
            self.waker.wake(&DELIVERIES);
        }
        Ok(new.unsigned_abs())
    }

    /// Number of unfinished messages of the group, counted up to `max`.
    pub(crate) async fn backlog(&self, group: &str, max: u32) -> Result<u64, sqlx::Error> {
        let count: i64 = sqlx::query_scalar(BACKLOG)
            .bind(group)
            .bind(i64::from(max))
            .fetch_one(&self.pool)
            .await?;
        Ok(count.unsigned_abs())
    }

    /// The subscriptions to these topics that this database knows: topic and group.
    pub(crate) async fn subscriptions(
        &self,
        topics: &[&str],
    ) -> Result<Vec<(String, String)>, sqlx::Error> {
        sqlx::query_as(SUBSCRIPTIONS)
            .bind(topics)
            .fetch_all(&self.pool)
            .await
    }
}
