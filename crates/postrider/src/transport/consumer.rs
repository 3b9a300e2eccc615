//! Receiving and settling deliveries.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgPool};
use tokio::sync::mpsc::UnboundedSender;

use super::{Message, TransportError};
use crate::runtime::Verdict;

/// The right to settle one delivery. Not `Clone`, consumed by settling. If it is dropped, the message is redelivered when
/// its lease expires.
#[derive(Debug)]
pub struct Receipt {
    number: u64,
    dropped: Option<UnboundedSender<u64>>,
}

impl Receipt {
    /// For transports: a number that identifies the delivery, and a channel that reports if the receipt is dropped.
    #[must_use]
    pub const fn new(number: u64, dropped: UnboundedSender<u64>) -> Self {
        Self {
            number,
            dropped: Some(dropped),
        }
    }

    /// For transports: the delivery's number, when it is settled.
    #[must_use]
    pub fn redeem(mut self) -> u64 {
        self.dropped = None;
        self.number
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped.take() {
            // The consumer may be gone already.
            let _ = dropped.send(self.number);
        }
    }
}

/// A message delivered to a consumer.
#[derive(Debug)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// Failed attempts of this group before this one.
    pub attempts: u32,
    /// Whether this message may have been delivered before.
    pub redelivered: bool,
    /// The right to settle it.
    pub receipt: Receipt,
}

/// What settling a delivery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was settled as requested.
    Settled,
    /// It is a dead letter now.
    Dead,
    /// The delivery had gone to another consumer: nothing was changed.
    Lost,
}

/// Receives for one group. Closing it returns what it holds; no attempts are spent.
pub trait Consumer: Send + Sync + fmt::Debug {
    /// Up to `max` deliveries; waits up to `wait` for the first. None while the prefetch limit is reached.
    ///
    /// The future may be dropped at any time without losing a delivery.
    fn receive(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>>;

    /// Settles each delivery by its verdict; the subscription's policy bounds the attempts. One result each, in order.
    fn settle(
        &self,
        batch: Vec<(Receipt, Verdict)>,
    ) -> BoxFuture<'_, Result<Vec<Fate>, TransportError>>;

    /// Acknowledges deliveries in the caller's transaction: the effect and the acknowledgement commit together, and no
    /// inbox is needed. On any error, roll back; the messages are redelivered.
    ///
    /// Only if [`Consumer::shares`] returns true.
    fn settle_in<'a>(
        &'a self,
        transaction: &'a mut PgConnection,
        receipts: Vec<Receipt>,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Whether deliveries live in the database of this pool.
    fn shares<'a>(&'a self, pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>>;

    /// Number of unsettled deliveries.
    fn held(&self) -> usize;

    /// Returns unsettled deliveries to the transport and ends.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>>;
}

impl dyn Consumer + '_ {
    /// Acknowledges one delivery.
    pub async fn ack(&self, receipt: Receipt) -> Result<Fate, TransportError> {
        self.settle_one(receipt, Verdict::Done).await
    }

    /// Has one delivery redelivered after this delay; no attempt is spent.
    pub async fn nack(&self, receipt: Receipt, after: Duration) -> Result<Fate, TransportError> {
        self.settle_one(receipt, Verdict::Snooze(after)).await
    }

    /// Settles one delivery.
    pub async fn settle_one(
        &self,
        receipt: Receipt,
        verdict: Verdict,
    ) -> Result<Fate, TransportError> {
        let fates = self.settle(vec![(receipt, verdict)]).await?;
        Ok(fates.first().copied().unwrap_or(Fate::Lost))
    }
}
