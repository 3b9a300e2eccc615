//! The names that most programs need: `use postrider::prelude::*;`

pub use crate::migrate::Migrator;
pub use crate::outbox::{EnqueuerOptions, OUTBOX, enqueue, enqueue_many};
pub use crate::wake::Waker;
pub use crate::{
    BoxError, CancellationToken, Category, Enqueuer, Failure, Handled, Handler, Item, Message,
    Publisher, RetryPolicy, Verdict, WorkTable, Worker, WorkerOptions, WorkerPool,
};
