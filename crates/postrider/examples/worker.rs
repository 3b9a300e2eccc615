//! A worker with two handlers: `DATABASE_URL=… cargo run --example worker`. Exits when everything is handled.

use std::time::Duration;

use postrider::prelude::*;
use sqlx::PgPool;

#[derive(serde::Serialize, serde::Deserialize)]
struct Invoice {
    number: i64,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url =
        std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a database of your own")?;
    let pool = PgPool::connect(&url).await?;
    Migrator::new([postrider::migrations()])
        .run(&mut *pool.acquire().await?)
        .await?;
    sqlx::query("create table if not exists sent_invoice (number bigint)")
        .execute(&pool)
        .await?;

    let messages = (1..=100)
        .map(|number| {
            Message::new(
                if number % 10 == 0 {
                    "invoice.draft"
                } else {
                    "invoice.sent"
                },
                &Invoice { number },
            )
        })
        .collect::<Result<Vec<_>, _>>()?;
    enqueue_many(&mut *pool.acquire().await?, &messages).await?;

    // The row is written in the transaction that settles the item: both or neither, exactly once.
    let sent = Handler::new(|item| async move {
        let Invoice { number } = item.read()?;
        let write = Handled::from(Verdict::Done).with(move |tx| {
            Box::pin(async move {
                sqlx::query("insert into sent_invoice values ($1)")
                    .bind(number)
                    .execute(tx)
                    .await?;
                Ok(())
            })
        });
        Ok(write)
    });
    // Fails once, then succeeds: the policy decides the delay.
    let draft = Handler::new(|item| async move {
        if item.attempts == 0 {
            return Ok(Verdict::retry(Failure::new(
                "NETWORK_ERROR",
                "the printer is offline",
            )));
        }
        Ok(Verdict::Done)
    })
    .policy(RetryPolicy::fixed(Duration::from_millis(200), 3)?)
    .concurrency(4);

    let stop = CancellationToken::new();
    let worker = Worker::new(pool.clone(), &OUTBOX)?
        .handle("invoice.sent", sent)
        .handle("invoice.draft", draft);
    let running = tokio::spawn(worker.run(stop.clone()));
    loop {
        let left: i64 = sqlx::query_scalar("select count(*) from postrider.outbox where finished_at is null and topic like 'invoice.%'")
            .fetch_one(&pool)
            .await?;
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    running.await??;
    let written: i64 = sqlx::query_scalar("select count(*) from sent_invoice")
        .fetch_one(&pool)
        .await?;
    println!("all handled; {written} invoices written");
    Ok(())
}
