//! Real brokers for tests: NATS, RabbitMQ and Kafka, each started by the test process itself.
//!
//! The promise: a [`Server`] listens on free ports of the loopback address, keeps its data in a directory of its own,
//! answers when [`Server::start`] returns, can be stopped, killed and started again with what it stored, and dies with the
//! test process, however that ends. What a test needs comes from [`nats`], [`rabbitmq`] and [`kafka`]: one server per
//! process, shared by its tests; a second one, for a single test at a time, from [`Kind::alone`]; a new one, which knows
//! nobody's topics and ends with its test, from [`Kind::own`].
//!
//! A server that is not installed is a printed skip; with `CI` set it is a failure. `scripts/setup` installs all three.

mod child;
mod kafka;
mod nats;
mod place;
mod rabbitmq;

use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use child::Keeper;
use place::Place;
pub(crate) use place::free_port;

/// Which broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// NATS with JetStream.
    Nats,
    /// RabbitMQ.
    Rabbitmq,
    /// Apache Kafka, a single node that is its own controller.
    Kafka,
}

/// A broker that this process has started.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    place: Place,
    url: String,
    keeper: Keeper,
}

/// A server that one test has to itself, to stop and start it.
pub type Alone = tokio::sync::MutexGuard<'static, Server>;

/// The process's NATS server; none if it is not installed.
pub async fn nats() -> Option<&'static Server> {
    Kind::Nats.shared().await
}

/// The process's RabbitMQ server; none if it is not installed.
pub async fn rabbitmq() -> Option<&'static Server> {
    Kind::Rabbitmq.shared().await
}

/// The process's Kafka server; none if it is not installed.
pub async fn kafka() -> Option<&'static Server> {
    Kind::Kafka.shared().await
}

/// The servers of this process, by kind.
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
    /// The broker's name.
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

    /// A server that is nobody else's until the guard is dropped, and that runs; none if it is not installed.
    pub async fn alone(self) -> Option<Alone> {
        let slot = &SLOTS[self as usize].alone;
        let server = slot
            .get_or_init(async || self.launch().await.map(tokio::sync::Mutex::new))
            .await;
        let server = server.as_ref()?.lock().await;
        // Whoever had it before may have failed half-way.
        server.start().await;
        Some(server)
    }

    /// A new server for one test, without anything that others left there; it ends when it is dropped. None if it is not
    /// installed.
    pub async fn own(self) -> Option<Server> {
        self.launch().await
    }

    async fn launch(self) -> Option<Server> {
        tokio::task::spawn_blocking(move || Server::launch(self))
            .await
            .expect("launch a server")
    }

    /// What is installed, or what is missing.
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
                say_once(&format!("SKIPPED without {}: {missing}", kind.name()));
                return None;
            }
        };
        let place = Place::new(kind.name());
        let (url, commands) = match kind {
            Kind::Nats => nats::commands(&place),
            Kind::Rabbitmq => rabbitmq::commands(&place),
            Kind::Kafka => kafka::commands(&place),
        };
        let server = Self {
            kind,
            url,
            keeper: Keeper::new(place.clone(), commands),
            place,
        };
        server.keeper.start(kind);
        say_once(&format!("tests run against {version}"));
        Some(server)
    }

    /// Where it listens, as clients write it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts it, if it does not run; returns when it answers.
    pub async fn start(&self) {
        let (keeper, kind) = (self.keeper.clone(), self.kind);
        tokio::task::spawn_blocking(move || keeper.start(kind))
            .await
            .expect("start a server");
    }

    /// Asks it to end in order; returns when it is gone.
    pub async fn stop(&self) {
        self.end("TERM").await;
    }

    /// Ends it without a word, as a crash does; returns when it is gone.
    pub async fn kill(&self) {
        self.end("KILL").await;
    }

    async fn end(&self, signal: &'static str) {
        let keeper = self.keeper.clone();
        tokio::task::spawn_blocking(move || keeper.end(signal))
            .await
            .expect("end a server");
    }

    /// What it wrote to its log, for a test that failed.
    pub fn log(&self) -> String {
        self.place.log()
    }
}

/// Past the capture of test output, so that it shows also when all is well; each line once.
pub(crate) fn say_once(line: &str) {
    static SAID: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    let mut said = SAID
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !said.iter().any(|earlier| earlier == line) {
        let _ = writeln!(std::io::stderr(), "{line}");
        said.push(line.to_owned());
    }
}
