//! A broker's consumer: deliveries from the database, plus the intakes that fill it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use postrider::Verdict;
use postrider::transport::{Consumer, Delivery, Fate, Receipt, TransportError};
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::intake::Intake;
use super::{Broker, Options};
use crate::PostgresTransport;

/// Pause before an intake that panicked is replaced.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Receives what its intakes store for one group. Dropping it stops the intakes.
#[derive(Debug)]
pub(super) struct BrokerConsumer {
    local: Box<dyn Consumer>,
    intakes: Vec<AbortOnDropHandle<()>>,
    stop: CancellationToken,
}

impl BrokerConsumer {
    pub fn start(
        local: Box<dyn Consumer>,
        broker: &Arc<dyn Broker>,
        database: &PostgresTransport,
        group: &str,
        topics: &[String],
        options: Options,
    ) -> Self {
        let stop = CancellationToken::new();
        let sources = broker.sources(group, topics).len();
        let start = |index| {
            let supervisor = IntakeSupervisor {
                broker: Arc::clone(broker),
                database: database.clone(),
                group: group.to_owned(),
                topics: topics.to_vec(),
                index,
                options,
            };
            AbortOnDropHandle::new(tokio::spawn(supervisor.run(stop.clone())))
        };
        Self {
            local,
            intakes: (0..sources).map(start).collect(),
            stop,
        }
    }
}

/// Runs the intake of the source with this index, and replaces it if the source panics.
struct IntakeSupervisor {
    broker: Arc<dyn Broker>,
    database: PostgresTransport,
    group: String,
    topics: Vec<String>,
    index: usize,
    options: Options,
}

impl IntakeSupervisor {
    async fn run(self, stop: CancellationToken) {
        while let Some(intake) = self.next() {
            let Err(error) = intake.run(stop.clone()).await else {
                return;
            };
            tracing::error!(%error, group = self.group, broker = self.broker.name(), "intake panicked; starting a new one; please report this bug");
            if stop
                .run_until_cancelled(tokio::time::sleep(RESTART_PAUSE))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    fn next(&self) -> Option<Intake> {
        let mut sources = self.broker.sources(&self.group, &self.topics).into_iter();
        Some(Intake {
            source: sources.nth(self.index)?,
            pending: Vec::new(),
            source_busy: false,
            local: self.database.clone(),
            group: self.group.clone(),
            broker: self.broker.name(),
            options: self.options,
        })
    }
}

impl Consumer for BrokerConsumer {
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
