//! Moves messages from the outbox to the log inside the database.

use postrider::Result;
use postrider::transport::Relay;
use sqlx::PgPool;
use sqlx::types::time::OffsetDateTime;
use tokio::time::Instant;

const RELAY: &str = "select moved, last_due, last_id from postrider.relay($1, $2, $3, $4, $5, $6)";

/// Messages per statement.
const BATCH_SIZE: i32 = 500;

/// Moves the waiting messages, one transaction per statement, until none are left or the turn is over.
pub(super) async fn relay(pool: &PgPool, order: &Relay) -> Result<u64> {
    let until = Instant::now() + order.turn;
    let beginning = order.origin.beginning();
    let mut from: (Option<OffsetDateTime>, i64) = (None, i64::MIN);
    let mut total = 0;
    loop {
        let (moved, due, id): (i32, Option<OffsetDateTime>, Option<i64>) = sqlx::query_as(RELAY)
            .bind(&beginning)
            .bind(&order.except)
            .bind(&order.worker)
            .bind(from.0)
            .bind(from.1)
            .bind(BATCH_SIZE)
            .fetch_one(pool)
            .await?;
        total += u64::try_from(moved).unwrap_or(0);
        if moved < BATCH_SIZE || Instant::now() >= until {
            return Ok(total);
        }
        from = (due, id.unwrap_or(i64::MIN));
    }
}
