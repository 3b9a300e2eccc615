//! What carries the messages of a test: the database itself, or a broker that is the test's own. Either can go away and
//! come back.

use std::sync::Arc;
use std::time::Duration;

use postrider::transport::Transport;
use postrider_testkit::servers::{Kind, Server};
use postrider_testkit::{Proxy, TestDb};
use postrider_transports::{PostgresTransport, Settings};
use serde_json::json;
use sqlx::PgPool;

/// How long the database can't be reached when it is "restarted": its server is every other test's, too.
const OUTAGE: Duration = Duration::from_millis(1500);

pub enum Carrier {
    /// The database, behind a network that can be cut.
    Postgres(Box<Proxy>),
    Broker(Kind, Server),
}

impl Carrier {
    /// None: the broker is not installed.
    pub async fn new(kind: Option<Kind>, db: &TestDb) -> Option<Self> {
        Some(match kind {
            None => Self::Postgres(Box::new(Proxy::for_database(db).await)),
            Some(kind) => Self::Broker(kind, kind.own().await?),
        })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "postgres",
            Self::Broker(kind, _) => kind.name(),
        }
    }

    /// Where the program finds its database.
    pub fn database_url(&self, db: &TestDb) -> String {
        match self {
            Self::Postgres(proxy) => proxy.url(),
            Self::Broker(..) => db.url(),
        }
    }

    /// As the program's configuration says it.
    pub fn settings(&self) -> Vec<String> {
        match self {
            Self::Postgres(_) => Vec::new(),
            Self::Broker(kind, server) => vec![
                format!("transport.kind={}", kind.name()),
                format!("transport.url={}", server.url()),
            ],
        }
    }

    /// A way for a test to send messages beside the program.
    pub fn open(&self, pool: PgPool) -> Arc<dyn Transport> {
        let url = match self {
            Self::Postgres(_) => "",
            Self::Broker(_, server) => server.url(),
        };
        let settings: Settings = serde_json::from_value(json!({
            "kind": self.name(), "url": url, "declare": true, "replicas": 0, "backlog": 10_000,
        }))
        .unwrap();
        settings.open(PostgresTransport::new(pool).unwrap())
    }

    /// Goes away, by a crash or in order, and comes back with all that it had confirmed.
    pub async fn restart(&self, crash: bool) {
        match self {
            Self::Postgres(proxy) => {
                proxy.refuse();
                proxy.cut();
                tokio::time::sleep(OUTAGE).await;
                proxy.pass();
            }
            Self::Broker(_, server) => {
                if crash {
                    server.kill().await;
                } else {
                    server.stop().await;
                }
                server.start().await;
            }
        }
    }
}
