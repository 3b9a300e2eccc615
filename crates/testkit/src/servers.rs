//! Real brokers for tests: NATS, RabbitMQ and Kafka, each started by the test process itself.
//!
//! Promise: a [`Server`] listens on free loopback ports, stores its data in a directory of its own, is ready when
//! [`Server::start`] returns, can be stopped, killed and restarted with its data, and dies with the test process,
//! however that ends. [`nats`], [`rabbitmq`] and [`kafka`] return the process's shared server; [`Kind::exclusive`] a
//! second one that one test at a time may stop; [`Kind::dedicated`] a new, empty one that ends with its test.
//!
//! If a server isn't installed, tests print a skip; with `CI` set they fail. `scripts/setup` installs all three.

mod child;
mod kafka;
mod nats;
mod rabbitmq;
mod server_dir;

use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use child::Supervisor;
use server_dir::ServerDir;
pub(crate) use server_dir::free_port;

/// Kind of broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// NATS with JetStream.
    Nats,
    /// RabbitMQ.
    Rabbitmq,
    /// Apache Kafka, a single node that is its own controller.
    Kafka,
}

/// A broker started by this process.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    dir: ServerDir,
    url: String,
    supervisor: Supervisor,
}

/// A server that one test owns, so that it can stop and start it.
pub type ExclusiveServer = tokio::sync::MutexGuard<'static, Server>;

/// The process's NATS server; `None` if it isn't installed.
pub async fn nats() -> Option<&'static Server> {
    Kind::Nats.shared().await
}

/// The process's RabbitMQ server; `None` if it isn't installed.
pub async fn rabbitmq() -> Option<&'static Server> {
    Kind::Rabbitmq.shared().await
}

/// The process's Kafka server; `None` if it isn't installed.
pub async fn kafka() -> Option<&'static Server> {
    Kind::Kafka.shared().await
}

/// Servers of this process, by kind.
struct Slots {
    shared: tokio::sync::OnceCell<Option<Server>>,
    alone: tokio::sync::OnceCell<Option<tokio::sync::Mutex<Server>>>,
}

static SLOTS: [Slots; 3] = [const {
    Slots {
        shared: tokio::sync::OnceCell::const_new(),
        alone: tokio::sync::OnceCell::const_new(),
    }
}; 3];

impl Kind {
    /// Name of the broker.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::Rabbitmq => "rabbitmq",
            Self::Kafka => "kafka",
        }
    }

    /// The one server of this process that all tests share; none if it is not installed.
    pub async fn shared(self) -> Option<&'static Server> {
        let slot = &SLOTS[self as usize].shared;
        let server = slot.get_or_init(|| self.launch()).await;
        server.as_ref()
    }

    /// A running server that belongs to the caller until the guard is dropped; `None` if it isn't installed.
    pub async fn exclusive(self) -> Option<ExclusiveServer> {
        let slot = &SLOTS[self as usize].alone;
        let server = slot
            .get_or_init(async || self.launch().await.map(tokio::sync::Mutex::new))
            .await;
        let server = server.as_ref()?.lock().await;
        // The test before may have failed while it was stopped.
        server.start().await;
        Some(server)
    }

    /// A new, empty server for one test; it ends when dropped. `None` if it isn't installed.
    pub async fn dedicated(self) -> Option<Server> {
        self.launch().await
    }

    async fn launch(self) -> Option<Server> {
        tokio::task::spawn_blocking(move || Server::launch(self))
            .await
            .expect("launch a server")
    }

    /// Installed version, or what is missing.
    fn version(self) -> Result<String, String> {
        match self {
            Self::Nats => nats::version(),
            Self::Rabbitmq => rabbitmq::version(),
            Self::Kafka => kafka::version(),
        }
    }
}

impl Server {
    fn launch(kind: Kind) -> Option<Self> {
        let version = match kind.version() {
            Ok(version) => version,
            Err(missing) => {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "{}: {missing}; scripts/setup installs it",
                    kind.name()
                );
                log_once(&format!("SKIPPED without {}: {missing}", kind.name()));
                return None;
            }
        };
        let dir = ServerDir::new(kind.name());
        let (url, commands) = match kind {
            Kind::Nats => nats::commands(&dir),
            Kind::Rabbitmq => rabbitmq::commands(&dir),
            Kind::Kafka => kafka::commands(&dir),
        };
        let server = Self {
            kind,
            url,
            supervisor: Supervisor::new(dir.clone(), commands),
            dir,
        };
        server.supervisor.start(kind);
        log_once(&format!("tests run against {version}"));
        Some(server)
    }

    /// URL for clients.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts it unless it is running; returns when it is ready.
    pub async fn start(&self) {
        let (supervisor, kind) = (self.supervisor.clone(), self.kind);
        tokio::task::spawn_blocking(move || supervisor.start(kind))
            .await
            .expect("start a server");
    }

    /// Shuts it down; returns when it has ended.
    pub async fn stop(&self) {
        self.end("TERM").await;
    }

    /// Kills it, as a crash does; returns when it has ended.
    pub async fn kill(&self) {
        self.end("KILL").await;
    }

    async fn end(&self, signal: &'static str) {
        let supervisor = self.supervisor.clone();
        tokio::task::spawn_blocking(move || supervisor.end(signal))
            .await
            .expect("end a server");
    }

    /// Its log, for the message of a failed test.
    pub fn log(&self) -> String {
        self.dir.log()
    }
}

/// Prints a line once per process, past the capture of test output.
pub(crate) fn log_once(line: &str) {
    static LOGGED: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    let mut logged = LOGGED
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !logged.iter().any(|earlier| earlier == line) {
        let _ = writeln!(std::io::stderr(), "{line}");
        logged.push(line.to_owned());
    }
}
