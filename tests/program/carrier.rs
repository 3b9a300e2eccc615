//! The transport of a test: the database itself, or a broker of the test's own. Both can be restarted.
//! come back.

use std::sync::Arc;
use std::time::Duration;

use postrider::transport::Transport;
use postrider_testkit::servers::{Kind, Server};
use postrider_testkit::{Proxy, TestDb};
use postrider_transports::{PostgresTransport, Settings};
use serde_json::json;
use sqlx::PgPool;

/// Simulated outage of the database; its server is shared with other tests and can't be restarted.
const OUTAGE: Duration = Duration::from_millis(1500);

pub enum Carrier {
    /// The database, behind a proxy that can cut connections.
    Postgres(Box<Proxy>),
    Broker(Kind, Server),
}

impl Carrier {
    /// None: the broker is not installed.
    pub async fn new(kind: Option<Kind>, db: &TestDb) -> Option<Self> {
        Some(match kind {
            None => Self::Postgres(Box::new(Proxy::for_database(db).await)),
            Some(kind) => Self::Broker(kind, kind.dedicated().await?),
        })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "postgres",
            Self::Broker(kind, _) => kind.name(),
        }
    }

    /// The program's database URL.
    pub fn database_url(&self, db: &TestDb) -> String {
        match self {
            Self::Postgres(proxy) => proxy.url(),
            Self::Broker(..) => db.url(),
        }
    }

    /// The transport's settings for the program.
    pub fn settings(&self) -> Vec<String> {
        match self {
            Self::Postgres(_) => Vec::new(),
            Self::Broker(kind, server) => vec![
                format!("transport.kind={}", kind.name()),
                format!("transport.url={}", server.url()),
            ],
        }
    }

    /// A transport for messages that the test sends itself.
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

    /// Restarts it, by a crash or cleanly; it keeps everything it confirmed.
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
