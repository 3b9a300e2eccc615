//! Supervises the processes of a server from one thread that lives as long as the test process: with PDEATHSIG, the
//! kernel kills a child when the *thread* that started it ends.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Kind;
use super::server_dir::ServerDir;

/// Long enough for a JVM on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Commands that start a server, helpers first.
pub(super) struct Commands {
    pub helpers: Vec<Vec<String>>,
    pub server: Vec<String>,
    pub env: Vec<(&'static str, String)>,
    /// Readiness check; gets what the server has logged since this start.
    pub ready: Box<dyn Fn(&str) -> bool + Send>,
}

enum Request {
    Start(Kind),
    End(&'static str),
}

/// Handle of the thread that owns the processes.
#[derive(Debug, Clone)]
pub(super) struct Supervisor {
    orders: Sender<(Request, Sender<Result<(), String>>)>,
}

impl Supervisor {
    pub fn new(dir: ServerDir, commands: Commands) -> Self {
        let (orders, inbox) = channel();
        std::thread::Builder::new()
            .name("testkit-broker".to_owned())
            .spawn(move || supervise(&dir, &commands, &inbox))
            .expect("start a broker's thread");
        Self { orders }
    }

    pub fn start(&self, kind: Kind) {
        self.request(Request::Start(kind));
    }

    pub fn end(&self, signal: &'static str) {
        self.request(Request::End(signal));
    }

    fn request(&self, request: Request) {
        let (reply, result) = channel();
        self.orders
            .send((request, reply))
            .expect("a broker's thread");
        if let Err(problem) = result.recv().expect("a reply of the broker's thread") {
            panic!("{problem}");
        }
    }
}

fn supervise(
    dir: &ServerDir,
    commands: &Commands,
    inbox: &Receiver<(Request, Sender<Result<(), String>>)>,
) {
    let mut helpers = Vec::new();
    let mut server: Option<Child> = None;
    while let Ok((request, reply)) = inbox.recv() {
        let done = match request {
            Request::Start(kind) => start(dir, commands, &mut helpers, &mut server, kind),
            Request::End(signal) => {
                if let Some(mut child) = server.take() {
                    end(&mut child, signal);
                }
                Ok(())
            }
        };
        // The caller may have failed meanwhile.
        let _ = reply.send(done);
    }
    // All handles are gone.
    for child in server.iter_mut().chain(&mut helpers) {
        end(child, "KILL");
    }
    let _ = std::fs::remove_dir_all(dir.dir());
}

fn start(
    dir: &ServerDir,
    commands: &Commands,
    helpers: &mut Vec<Child>,
    server: &mut Option<Child>,
    kind: Kind,
) -> Result<(), String> {
    let running = |child: &mut Child| child.try_wait().is_ok_and(|ended| ended.is_none());
    if server.as_mut().is_some_and(running) {
        return Ok(());
    }
    if helpers.is_empty() {
        for argv in &commands.helpers {
            helpers.push(spawn(dir, argv, &commands.env)?);
        }
    }
    let before = dir.log().len();
    let mut child = spawn(dir, &commands.server, &commands.env)?;
    let end = Instant::now() + DEADLINE;
    while !(commands.ready)(dir.log().get(before..).unwrap_or_default()) {
        let name = kind.name();
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("{name} ended with {status}:\n{}", dir.log()));
        }
        if Instant::now() > end {
            return Err(format!("{name} is not ready:\n{}", dir.log()));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    *server = Some(child);
    Ok(())
}

fn spawn(dir: &ServerDir, argv: &[String], env: &[(&str, String)]) -> Result<Child, String> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.dir().join("log"))
        .map_err(|error| format!("a broker's log: {error}"))?;
    let errors = log.try_clone().map_err(|error| error.to_string())?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .args(argv)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir(dir.dir())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("setpriv {argv:?}: {error}"))
}

fn end(child: &mut Child, signal: &str) {
    let signal: Signal = format!("SIG{signal}").parse().expect("a signal");
    let pid = Pid::from_raw(child.id().try_into().expect("a process id"));
    let _ = kill(pid, signal);
    let deadline = Instant::now() + DEADLINE;
    while child.try_wait().is_ok_and(|ended| ended.is_none()) {
        if Instant::now() > deadline {
            let _ = child.kill();
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
