//! The outbox: messages enqueued in the caller's own transaction, and published afterwards.
//!
//! The message and the caller's other writes commit together or not at all. Once committed, the message ends in done or
//! dead, never silently. Delivery is at least once; the id is the same every time.
//!
//! - **Ordering key**: messages of one key are published one after the other, in the order in which their transactions
//!   committed. Enqueuing locks the key until commit. A message that isn't the first of its key is parked, and settling
//!   the first makes the next one due. A dead message doesn't block its key. Ordering keys can't be combined with a
//!   delay.
//! - **Dedupe key**: unique within a topic while the message is unfinished; a second enqueue returns the first
//!   message's id. Once the message is done, the key is free again: a consumer that must not act twice uses an
//!   [inbox](crate::inbox).
//! - **Wake-up**: there is no NOTIFY in the caller's transaction. Call [`Waker::wake`](crate::wake::Waker::wake) after
//!   the commit to publish at once instead of at the next poll.
//!
//! ```no_run
//! use postrider::outbox::{self, Message};
//!
//! # async fn example(pool: &sqlx::PgPool) -> postrider::Result<()> {
//! let mut tx = pool.begin().await?;
//! sqlx::query("update invoice set sent = true where id = 7").execute(&mut *tx).await?;
//! outbox::enqueue(&mut tx, &Message::new("invoices", &7)?).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

mod bulk;
mod enqueue;
mod enqueuer;
mod json_text;
mod message;

pub use bulk::{COPY_FROM, Enqueued, enqueue_many};
pub use enqueue::{Receipt, enqueue};
pub use enqueuer::{Enqueuer, EnqueuerOptions};
pub use message::{MAX_DELAY, MAX_HEADERS, MAX_KEY, MAX_PAYLOAD, MAX_TOPIC, Message};

use crate::lease::{Columns, Finish, OrderingKeys, States, WorkTable};

/// The work table `postrider.outbox`.
pub static OUTBOX: WorkTable = WorkTable {
    name: "postrider.outbox",
    columns: Columns::STANDARD,
    states: States::STANDARD,
    state_type: "postrider.work_state",
    kind: Some("topic"),
    payload: "t.payload",
    headers: Some("t.headers"),
    trace: Some("t.trace"),
    ordering: Some(OrderingKeys {
        column: "ordering_key",
        promote: "postrider.promote",
        stranded: "postrider.stranded_keys",
    }),
    finish: Finish::Delete,
    max_losses: 10,
};
