//! One life of the server process, from launch to end.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};
use tokio::process::{Child, Command};

use crate::account::Account;
use crate::binaries::{Installation, on_path};
use crate::error::Error;
use crate::layout::Layout;
use crate::log::Log;
use crate::{DATABASE, ROLE};

/// How long a server may neither answer nor say that it is starting.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often to knock while it starts.
const KNOCK: Duration = Duration::from_millis(15);
/// "The database system is starting up" (or still recovering from a crash).
const CANNOT_CONNECT_NOW: &str = "57P03";
/// The program's database is not there yet.
const NO_SUCH_DATABASE: &str = "3D000";

/// How to end a server, gentlest first, and how long each step may take.
const ENDINGS: &[(Signal, Duration)] = &[
    (Signal::SIGINT, Duration::from_secs(60)),
    (Signal::SIGQUIT, Duration::from_secs(10)),
    (Signal::SIGKILL, Duration::from_secs(10)),
];

/// A server process that this program started.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: Log,
}

impl Server {
    /// Starts the process; it is not ready yet.
    pub(crate) fn launch(
        layout: &Layout,
        installation: &Installation,
        account: &Account,
        settings: &[(String, String)],
    ) -> Result<Self, Error> {
        let (log, output) = Log::open(&layout.log)?;
        let errors = output
            .try_clone()
            .map_err(Error::io("open the log", &layout.log))?;
        let program = installation.program("postgres");
        let mut command = tied(&program, "INT");
        command.arg("-D").arg(&layout.cluster);
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // From its first instant it is in its cluster, where a later run would look for it.
        account.apply(&mut command, &layout.cluster);
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C at a terminal goes to the program's whole group: the program decides when
            // the server stops, after it has drained its own work.
            .process_group(0)
            .spawn()
            .map_err(Error::io("run", &program))?;
        Ok(Self { child, log })
    }

    /// The main process, while it lives.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) fn trim_log(&mut self) {
        self.log.trim();
    }

    /// Resolves when the process has ended.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus, Error> {
        self.child
            .wait()
            .await
            .map_err(Error::io("wait for", self.log.path()))
    }

    /// The last lines of its log.
    pub(crate) fn last_words(&self) -> String {
        self.log.tail()
    }

    /// Waits until it accepts connections to the program's database, making that if need be.
    /// A server that says it is starting gets all the time it needs: after a crash that can be long.
    pub(crate) async fn ready(&mut self, socket_dir: &Path) -> Result<(), Error> {
        let options = connect_options(socket_dir);
        let mut since = Instant::now();
        loop {
            if let Some(status) = self
                .child
                .try_wait()
                .map_err(Error::io("wait for", self.log.path()))?
            {
                return Err(Error::Exited {
                    status,
                    log: self.log.path().to_owned(),
                    tail: self.log.tail(),
                });
            }
            let last = match knock(&options).await {
                Knock::Open => return Ok(()),
                Knock::NoDatabase => return make_database(&options).await,
                Knock::Starting => {
                    since = Instant::now();
                    String::new()
                }
                Knock::Closed(last) => last,
            };
            if since.elapsed() > PATIENCE {
                return Err(Error::NotReady {
                    waited: PATIENCE,
                    last,
                    log: self.log.path().to_owned(),
                    tail: self.log.tail(),
                });
            }
            tokio::time::sleep(KNOCK).await;
        }
    }

    /// Ends the process, gently if it lets us, and waits until it is gone.
    pub(crate) async fn shut_down(&mut self) -> Result<(), Error> {
        for (signal, patience) in ENDINGS {
            let Some(pid) = self.child.id() else {
                return Ok(());
            };
            // The number is surely ours: the child has not been waited for yet.
            let _ = kill(Pid::from_raw(pid.cast_signed()), *signal);
            match tokio::time::timeout(*patience, self.ended()).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) => tracing::warn!(%signal, "PostgreSQL does not stop; insisting"),
            }
        }
        Ok(())
    }
}

enum Knock {
    Open,
    NoDatabase,
    Starting,
    Closed(String),
}

async fn knock(options: &PgConnectOptions) -> Knock {
    let options = options.clone().database(DATABASE);
    let attempt = PgConnection::connect_with(&options);
    match tokio::time::timeout(Duration::from_secs(5), attempt).await {
        Ok(Ok(connection)) => {
            // Only that it opened matters.
            let _ = connection.close().await;
            Knock::Open
        }
        Ok(Err(sqlx::Error::Database(error))) => match error.code().as_deref() {
            Some(NO_SUCH_DATABASE) => Knock::NoDatabase,
            Some(CANNOT_CONNECT_NOW) => Knock::Starting,
            _ => Knock::Closed(error.to_string()),
        },
        Ok(Err(error)) => Knock::Closed(error.to_string()),
        Err(_) => Knock::Closed("no answer".to_owned()),
    }
}

async fn make_database(options: &PgConnectOptions) -> Result<(), Error> {
    let make = async {
        let options = options.clone().database("postgres");
        let mut connection = PgConnection::connect_with(&options).await?;
        sqlx::raw_sql("CREATE DATABASE postrider")
            .execute(&mut connection)
            .await?;
        connection.close().await
    };
    make.await.map_err(|source| Error::Database { source })
}

/// How to connect through the socket in this directory, whatever the environment says.
pub(crate) fn connect_options(socket_dir: &Path) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(socket_dir)
        .port(5432)
        .username(ROLE)
        .ssl_mode(PgSslMode::Disable)
        .disable_statement_logging()
}

/// A command whose process the kernel signals when the calling thread ends, which is why the
/// keeper's thread lives as long as the program. Where `setpriv` is missing (other systems than
/// Linux) the next start finds and ends what was left.
pub(crate) fn tied(program: &Path, signal: &str) -> Command {
    match on_path("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", signal]).arg(program);
            command
        }
        None => Command::new(program),
    }
}
