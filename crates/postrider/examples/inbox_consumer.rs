//! A consumer that gets a message several times and acts once: `DATABASE_URL=… cargo run --example inbox_consumer`.

use postrider::inbox::Inbox;
use postrider::migrate::Migrator;
use sqlx::PgPool;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url =
        std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a database of your own")?;
    let pool = PgPool::connect(&url).await?;
    Migrator::new([postrider::migrations()])
        .run(&mut *pool.acquire().await?)
        .await?;
    sqlx::query("create table if not exists balance (account text primary key, amount bigint)")
        .execute(&pool)
        .await?;
    sqlx::query("insert into balance values ('acc-1', 100) on conflict (account) do update set amount = 100")
        .execute(&pool)
        .await?;

    let message_id = format!("deduct-{}", uuid::Uuid::new_v4());
    for delivery in 1..=3 {
        let acted = deduct(&pool, &message_id).await?;
        println!(
            "delivery {delivery} of {message_id}: {}",
            if acted { "deducted" } else { "already done" }
        );
    }
    let amount: i64 = sqlx::query_scalar("select amount from balance where account = 'acc-1'")
        .fetch_one(&pool)
        .await?;
    println!("balance {amount}");
    Ok(())
}

/// The inbox entry and the effect commit together, so there is never one without the other.
async fn deduct(pool: &PgPool, message_id: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let mut tx = pool.begin().await?;
    let first = Inbox::new("wallet")?
        .first_time(&mut tx, message_id)
        .await?;
    if first {
        sqlx::query("update balance set amount = amount - 10 where account = 'acc-1'")
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(first)
}
