//! A message that exists if and only if your own write does: `DATABASE_URL=… cargo run --example enqueue_in_your_transaction`.

use postrider::migrate::Migrator;
use postrider::outbox::{Message, OUTBOX, enqueue};
use postrider::wake::Waker;
use sqlx::PgPool;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url =
        std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a database of your own")?;
    let pool = PgPool::connect(&url).await?;
    Migrator::new([postrider::migrations()])
        .run(&mut *pool.acquire().await?)
        .await?;
    sqlx::query("create table if not exists invoice (id bigint generated always as identity primary key, total numeric)")
        .execute(&pool)
        .await?;

    let mut tx = pool.begin().await?;
    let invoice: i64 =
        sqlx::query_scalar("insert into invoice (total) values (12.50) returning id")
            .fetch_one(&mut *tx)
            .await?;
    let message = Message::new(
        "invoice.created",
        &serde_json::json!({ "invoice": invoice }),
    )?
    .dedupe_key(format!("invoice-{invoice}"))?
    .ordering_key("customer-7")?;
    let receipt = enqueue(&mut tx, &message).await?;
    tx.commit().await?;

    // A hint after the commit: a worker picks the message up at once instead of at its next poll.
    Waker::new(pool.clone()).wake(&OUTBOX);
    println!(
        "invoice {invoice} and message {} were committed together",
        receipt.id
    );
    Ok(())
}
