//! The outbox: messages accepted in the caller's own transaction, and sent on afterwards.
//!
//! The promise: the message and the caller's other writes commit together or not at all, and once committed the
//! message ends in done or dead, never in silence. Delivery is at least once; the id is the same every time.
//!
//! - **Ordering key**: messages of one key go out one after the other, in the order in which their transactions
//!   committed. Enqueuing takes a lock per key until commit; a message that is not the first of its key waits
//!   parked, and settling the first makes the next one due. A dead message does not hold its key back. Keys can't be
//!   combined with a delay.
//! - **Dedupe key**: unique within a topic for as long as the message is unfinished; a second enqueue gets the first's id.
//!   Once the message is done the key is free again: a consumer that must not act twice has its inbox.
//! - **Wake-up**: no NOTIFY in the caller's transaction; call [`crate::wake::Waker::wake`] after commit if the message
//!   should go out at once rather than at the next poll.

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

/// `postrider.outbox`.
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
