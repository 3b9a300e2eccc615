//! The conformance suite for the broker transports, each against a real server of this process.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::transport::Transport;
use postrider_testkit::TestDb;
use postrider_testkit::servers::{ExclusiveServer, Kind};
use postrider_transports::PostgresTransport;
use postrider_transports::broker::{BrokerTransport, Options};
use postrider_transports::conformance::{DeadLetter, Harness, Restartable};

use crate::support::{database, dead_letters, pool};

/// A client of this broker with this database.
pub fn transport(
    kind: Kind,
    url: &str,
    replicas: usize,
    db: &TestDb,
    options: Options,
) -> BrokerTransport {
    let local = PostgresTransport::new(pool(db.connect_options())).unwrap();
    match kind {
        Kind::Nats => postrider_transports::nats::transport(url, 1, local, options),
        Kind::Rabbitmq => postrider_transports::rabbitmq::transport(url, replicas, local, options),
        Kind::Kafka => postrider_transports::kafka::transport(url, 1, local, options),
    }
}

/// A database, and the broker that all tests of this process share.
pub struct Shared {
    pub kind: Kind,
    pub url: String,
    pub db: TestDb,
}

pub async fn shared(kind: Kind) -> Option<Shared> {
    let url = kind.shared().await?.url().to_owned();
    Some(Shared {
        kind,
        url,
        db: database().await,
    })
}

impl Shared {
    pub fn transport(&self) -> BrokerTransport {
        // RabbitMQ: quorum queues, which work with a single node, too.
        transport(self.kind, &self.url, 3, &self.db, Options::default())
    }
}

impl Harness for Shared {
    fn connect(&self) -> BoxFuture<'_, Arc<dyn Transport>> {
        Box::pin(async {
            let transport: Arc<dyn Transport> = Arc::new(self.transport());
            transport
        })
    }

    fn dead_letters<'a>(&'a self, group: &'a str) -> BoxFuture<'a, Vec<DeadLetter>> {
        Box::pin(dead_letters(self.db.pool(), group))
    }
}

/// A database, and a broker that only this test uses.
pub struct Private {
    kind: Kind,
    server: ExclusiveServer,
    db: TestDb,
}

async fn private(kind: Kind) -> Option<Private> {
    Some(Private {
        kind,
        server: kind.exclusive().await?,
        db: database().await,
    })
}

impl Harness for Private {
    fn connect(&self) -> BoxFuture<'_, Arc<dyn Transport>> {
        Box::pin(async {
            let options = Options {
                declare_timeout: Duration::from_secs(2),
                ..Options::default()
            };
            let url = self.server.url();
            let transport: Arc<dyn Transport> =
                Arc::new(transport(self.kind, url, 1, &self.db, options));
            transport
        })
    }

    fn dead_letters<'a>(&'a self, group: &'a str) -> BoxFuture<'a, Vec<DeadLetter>> {
        Box::pin(dead_letters(self.db.pool(), group))
    }
}

impl Restartable for Private {
    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.server.kill())
    }

    fn start(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.server.start())
    }
}

macro_rules! broker {
    ($module:ident, $kind:expr) => {
        mod $module {
            async fn shared() -> Option<super::Shared> {
                super::shared($kind).await
            }

            async fn private() -> Option<super::Private> {
                super::private($kind).await
            }

            postrider_transports::conformance_tests!(self::shared, self::private);
        }
    };
}

broker!(nats, postrider_testkit::servers::Kind::Nats);
broker!(rabbitmq, postrider_testkit::servers::Kind::Rabbitmq);
broker!(kafka, postrider_testkit::servers::Kind::Kafka);
