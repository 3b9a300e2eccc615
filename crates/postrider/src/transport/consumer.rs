//! The receiving end.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgPool};
use tokio::sync::mpsc::UnboundedSender;

use super::{Message, TransportError};
use crate::runtime::Verdict;

/// The right to settle one delivery. Not `Clone`, consumed by settling; dropping it means that the message comes again,
/// though not before its lease has run out.
#[derive(Debug)]
pub struct Receipt {
    number: u64,
    dropped: Option<UnboundedSender<u64>>,
}

impl Receipt {
    /// For transports: a number by which the consumer finds the delivery again, and a way to hear that it was dropped.
    #[must_use]
    pub const fn new(number: u64, dropped: UnboundedSender<u64>) -> Self {
        Self {
            number,
            dropped: Some(dropped),
        }
    }

    /// For transports: that number, when the delivery is settled.
    #[must_use]
    pub fn redeem(mut self) -> u64 {
        self.dropped = None;
        self.number
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped.take() {
            // Without a consumer there is nobody to tell.
            let _ = dropped.send(self.number);
        }
    }
}

/// A message in a consumer's hands.
#[derive(Debug)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// Failed attempts of this group before this one.
    pub attempts: u32,
    /// May this message have been in a consumer's hands before?
    pub redelivered: bool,
    /// What to settle it with.
    pub receipt: Receipt,
}

/// What settling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// As asked.
    Settled,
    /// Given up: it is a dead letter now.
    Dead,
    /// The delivery had gone to another consumer: nothing was changed, and it comes or came again.
    Lost,
}

/// Receives for one group. Closing it gives back what it holds, at no cost to any message.
pub trait Consumer: Send + Sync + fmt::Debug {
    /// Up to `max` deliveries; waits up to `wait` for the first. None while as many are held as the prefetch allows.
    ///
    /// The future may be dropped at any moment: no delivery is lost with it.
    fn receive(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>>;

    /// Settles each delivery by its verdict; the subscription's policy bounds the attempts. One fate each, in order.
    fn settle(
        &self,
        batch: Vec<(Receipt, Verdict)>,
    ) -> BoxFuture<'_, Result<Vec<Fate>, TransportError>>;

    /// Marks deliveries as done in the caller's transaction: the effect and the acknowledgement commit together, and no
    /// inbox is needed. On any error roll back; the messages come again.
    ///
    /// Only where [`Consumer::shares`] says yes.
    fn settle_in<'a>(
        &'a self,
        transaction: &'a mut PgConnection,
        receipts: Vec<Receipt>,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Do deliveries live in the very database that this pool leads to?
    fn shares<'a>(&'a self, pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>>;

    /// How many deliveries are held unsettled.
    fn held(&self) -> usize;

    /// Gives back what is held and ends.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>>;
}

impl dyn Consumer + '_ {
    /// Acknowledges one delivery.
    pub async fn ack(&self, receipt: Receipt) -> Result<Fate, TransportError> {
        self.settle_one(receipt, Verdict::Done).await
    }

    /// Has one delivery come again after this long; no attempt is spent.
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
