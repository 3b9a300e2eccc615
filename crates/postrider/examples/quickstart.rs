//! A complete program: enqueues a message in a transaction of its own, and runs a worker until Ctrl-C.
//!
//! `DATABASE_URL=postgres://localhost/app cargo run --example quickstart`

use postrider::prelude::*;
use sqlx::PgPool;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    let mut connection = pool.acquire().await?;
    Migrator::new([postrider::migrations()])
        .run(&mut connection)
        .await?;

    // Enqueue: the message exists if and only if your transaction commits.
    let mut tx = pool.begin().await?;
    enqueue(&mut tx, &Message::new("emails", &"ada@example.org")?).await?;
    tx.commit().await?;

    // Work: a failed attempt is retried, and ends as a dead letter.
    let send = Handler::new(|item: Item| async move {
        let address: String = item.read()?;
        println!("sending an email to {address}");
        Ok(Verdict::Done)
    });
    let stop = CancellationToken::new();
    let worker = Worker::new(pool.clone(), &OUTBOX)?.handle("emails", send);
    let running = tokio::spawn(worker.run(stop.clone()));
    tokio::signal::ctrl_c().await?;
    stop.cancel();
    Ok(running.await??)
}
