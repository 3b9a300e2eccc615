//! Durable jobs and delivery on PostgreSQL.
//!
//! Work that was accepted is never lost, never applied twice in the database, and never hidden when it fails. Delivery
//! is at least once; an effect that commits in PostgreSQL happens exactly once; every outside effect carries a stable
//! id.
//!
//! ```no_run
//! use postrider::prelude::*;
//! use sqlx::PgPool;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), BoxError> {
//!     let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
//!     let mut connection = pool.acquire().await?;
//!     Migrator::new([postrider::migrations()])
//!         .run(&mut connection)
//!         .await?;
//!
//!     // Enqueue: the message exists if and only if your transaction commits.
//!     let mut tx = pool.begin().await?;
//!     enqueue(&mut tx, &Message::new("emails", &"ada@example.org")?).await?;
//!     tx.commit().await?;
//!
//!     // Work: a failed attempt is retried, and ends as a dead letter.
//!     let send = Handler::new(|item: Item| async move {
//!         let address: String = item.read()?;
//!         println!("sending an email to {address}");
//!         Ok(Verdict::Done)
//!     });
//!     let stop = CancellationToken::new();
//!     let worker = Worker::new(pool.clone(), &OUTBOX)?.handle("emails", send);
//!     let running = tokio::spawn(worker.run(stop.clone()));
//!     tokio::signal::ctrl_c().await?;
//!     stop.cancel();
//!     Ok(running.await??)
//! }
//! ```
//!
//! Where to go next: [`outbox`] (enqueue with your transaction), [`Worker`] and [`Handler`] (run it), [`retry`]
//! (policies), [`dead_letter`] (what failed permanently), [`lease`] (work on tables of your own), then [`inbox`],
//! [`ledger`], [`leader`], [`breaker`], [`batcher`] and [`transport`]. The schema comes from [`migrations`], run by a
//! [`migrate::Migrator`].

pub mod audit;
pub mod batcher;
pub mod breaker;
mod conn;
pub mod dead_letter;
pub mod decimal;
pub mod digest;
mod error;
pub mod failure;
pub mod inbox;
#[doc(hidden)]
pub mod internal;
pub mod leader;
pub mod lease;
pub mod ledger;
pub mod limits;
mod lock_wait;
pub mod migrate;
pub mod outbox;
pub mod prelude;
pub mod publisher;
pub mod retry;
mod runtime;
pub mod transport;
pub mod wake;

pub use error::{Error, Result};
pub use failure::{Category, Failure};
pub use lease::{Item, WorkTable};
pub use outbox::{Enqueuer, Message};
pub use publisher::Publisher;
pub use retry::RetryPolicy;
pub use runtime::{BoxError, Effect, Handled, Handler, Verdict, Worker, WorkerOptions, WorkerPool};
pub use tokio_util::sync::CancellationToken;

/// The migrations of the library's own schema, `postrider`.
#[must_use]
pub const fn migrations() -> migrate::MigrationSet {
    migration_set!(
        "postrider",
        [
            "0001_outbox",
            "0002_records",
            "0003_coordination",
            "0004_messages"
        ]
    )
}
