//! A consumer: deliveries of the database, with the intake that fills it.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use postrider_engine::runtime::Verdict;
use postrider_engine::transport::{Consumer, Delivery, Fate, Receipt, TransportError};
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::intake::Intake;
use super::{Options, Source};
use crate::PostgresTransport;

/// Receives for one group what its intakes bring. Dropped, it takes nothing in any more.
#[derive(Debug)]
pub(super) struct OutsideConsumer {
    local: Box<dyn Consumer>,
    intakes: Vec<AbortOnDropHandle<()>>,
    stop: CancellationToken,
}

impl OutsideConsumer {
    pub fn start(
        local: Box<dyn Consumer>,
        broker: &'static str,
        sources: Vec<Box<dyn Source>>,
        database: &PostgresTransport,
        group: &str,
        options: Options,
    ) -> Self {
        let stop = CancellationToken::new();
        let intake = |source| {
            let intake = Intake {
                source,
                pending: Vec::new(),
                local: database.clone(),
                group: group.to_owned(),
                broker,
                options,
            };
            AbortOnDropHandle::new(tokio::spawn(intake.run(stop.clone())))
        };
        Self {
            local,
            intakes: sources.into_iter().map(intake).collect(),
            stop,
        }
    }
}

impl Consumer for OutsideConsumer {
    fn receive(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        self.local.receive(max, wait)
    }

    fn settle(
        &self,
        batch: Vec<(Receipt, Verdict)>,
    ) -> BoxFuture<'_, Result<Vec<Fate>, TransportError>> {
        self.local.settle(batch)
    }

    fn settle_in<'a>(
        &'a self,
        transaction: &'a mut PgConnection,
        receipts: Vec<Receipt>,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.local.settle_in(transaction, receipts)
    }

    fn shares<'a>(&'a self, pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>> {
        self.local.shares(pool)
    }

    fn held(&self) -> usize {
        self.local.held()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        Box::pin(async move {
            self.stop.cancel();
            join_all(self.intakes).await;
            self.local.close().await
        })
    }
}
