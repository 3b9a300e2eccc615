//! A network proxy that injects faults between the program and PostgreSQL or an HTTP peer.
//!
//! Promise: faults affect only this proxy's connections. It listens on a loopback port of its own
//! and lives as long as the [`Proxy`].

mod fault;
mod pgwire;
mod pump;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::TestDb;
use crate::wait::eventually;
use fault::{Faults, Mode};
use pgwire::Wire;

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the program to its peer.
    ToServer,
    /// From the peer to the program.
    ToClient,
}

/// Where a COMMIT is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitCut {
    /// The COMMIT never reaches the server: nothing is committed.
    BeforeServer,
    /// The server has committed, but the program never gets the answer.
    BeforeAnswer,
}

/// Target of the proxy.
#[derive(Debug, Clone)]
enum Upstream {
    Tcp(String),
    Unix(PathBuf),
}

/// A proxy that injects faults.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    behind: Option<PgConnectOptions>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy in front of a test's database.
    pub async fn for_database(db: &TestDb) -> Self {
        let options = db.connect_options();
        let upstream = match options.get_socket() {
            Some(dir) => Upstream::Unix(dir.join(format!(".s.PGSQL.{}", options.get_port()))),
            None => Upstream::Tcp(format!("{}:{}", options.get_host(), options.get_port())),
        };
        Self::start(upstream, Some(options)).await
    }

    /// A proxy in front of anything that listens on `host:port`.
    pub async fn for_address(address: &str) -> Self {
        Self::start(Upstream::Tcp(address.to_owned()), None).await
    }

    async fn start(upstream: Upstream, behind: Option<PgConnectOptions>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port for the proxy");
        let address = listener.local_addr().expect("the proxy's address");
        let faults = Arc::new(Faults::default());
        let task = tokio::spawn(serve(
            listener,
            upstream,
            Arc::clone(&faults),
            behind.is_some(),
        ));
        Self {
            address,
            faults,
            behind,
            task,
        }
    }

    /// Address that the proxy listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How to connect to the database through the proxy.
    pub fn connect_options(&self) -> PgConnectOptions {
        let behind = self.behind.as_ref().expect("a proxy of a database");
        let mut url = behind.to_url_lossy();
        url.set_host(Some(&self.address.ip().to_string()))
            .expect("a URL with a host");
        url.set_port(Some(self.address.port()))
            .expect("a URL with a port");
        // Unencrypted, as the proxy parses the protocol.
        PgConnectOptions::from_url(&url)
            .expect("a valid URL")
            .ssl_mode(PgSslMode::Disable)
    }

    /// URL of the target through the proxy.
    pub fn url(&self) -> String {
        match self.behind {
            Some(_) => self.connect_options().to_url_lossy().to_string(),
            None => format!("http://{}", self.address),
        }
    }

    /// Forwards everything, on existing connections too. Armed cuts stay armed.
    pub fn pass(&self) {
        self.faults.set(Mode::Pass);
    }

    /// Half-open connections: they stay up, and all bytes are discarded. Discarded bytes stay lost
    /// after [`Proxy::pass`].
    pub fn black_hole(&self) {
        self.faults.set(Mode::BlackHole);
    }

    /// Delays all bytes by this long.
    pub fn delay(&self, time: Duration) {
        self.faults.set(Mode::Delay(time));
    }

    /// Forwards one byte per packet.
    pub fn trickle(&self) {
        self.faults.set(Mode::Trickle);
    }

    /// Resets new connections; existing ones stay up.
    pub fn refuse(&self) {
        self.faults.set(Mode::Refuse);
    }

    /// Breaks all connections.
    pub fn cut(&self) {
        self.faults.cut_all();
    }

    /// Breaks a connection once, after this many more bytes in this direction.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.faults.arm_budget(direction, bytes);
    }

    /// Breaks, once, the next connection that sends a COMMIT.
    pub fn cut_at_commit(&self, side: CommitCut) {
        assert!(self.behind.is_some(), "only a database commits");
        self.faults.arm_commit(side);
    }

    /// Number of connections that the proxy has broken.
    pub fn cuts(&self) -> u64 {
        self.faults.cuts()
    }

    /// Number of open connections.
    pub fn connections(&self) -> u64 {
        self.faults.open()
    }

    /// Waits until the proxy has broken this many connections in total.
    pub async fn wait_for_cuts(&self, connections: u64) {
        eventually("the proxy breaks connections", async || match self.cuts() {
            cuts if cuts >= connections => Ok(()),
            cuts => Err(format!("{cuts} of {connections}")),
        })
        .await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, upstream: Upstream, faults: Arc<Faults>, postgres: bool) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((client, _)) = accepted else {
            continue;
        };
        if faults.mode() == Mode::Refuse {
            // Zero linger: closing resets the connection.
            let _ = client.set_zero_linger();
            continue;
        }
        let (upstream, faults) = (upstream.clone(), Arc::clone(&faults));
        connections.spawn(async move {
            connect(client, upstream, faults, postgres).await;
        });
    }
}

async fn connect(client: TcpStream, upstream: Upstream, faults: Arc<Faults>, postgres: bool) {
    let _ = client.set_nodelay(true);
    let wire = postgres.then(Wire::default);
    // An unreachable server ends the client's connection, as it would without a proxy.
    match upstream {
        Upstream::Tcp(address) => {
            if let Ok(server) = TcpStream::connect(address).await {
                let _ = server.set_nodelay(true);
                pump::run(client.into_split(), server.into_split(), &faults, wire).await;
            }
        }
        Upstream::Unix(path) => {
            if let Ok(server) = UnixStream::connect(path).await {
                pump::run(client.into_split(), server.into_split(), &faults, wire).await;
            }
        }
    }
}
