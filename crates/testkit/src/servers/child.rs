//! The processes of a server: started, watched and ended from one thread that lives as long as the test process, because
//! the kernel ends a child when the *thread* that started it is gone.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Kind;
use super::place::Place;

/// Long enough for a Java machine on a busy computer.
const DEADLINE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);

/// How a server is started: helpers first, the server last.
pub(super) struct Commands {
    pub helpers: Vec<Vec<String>>,
    pub server: Vec<String>,
    pub env: Vec<(&'static str, String)>,
    /// Does it answer? Asked until it says yes, with what it has logged since this start.
    pub ready: Box<dyn Fn(&str) -> bool + Send>,
}

enum Order {
    Start(Kind),
    End(&'static str),
}

/// A handle to the thread that owns the processes.
#[derive(Debug, Clone)]
pub(super) struct Keeper {
    orders: Sender<(Order, Sender<Result<(), String>>)>,
}

impl Keeper {
    pub fn new(place: Place, commands: Commands) -> Self {
        let (orders, inbox) = channel();
        std::thread::Builder::new()
            .name("testkit-broker".to_owned())
            .spawn(move || keep(&place, &commands, &inbox))
            .expect("start a broker's thread");
        Self { orders }
    }

    pub fn start(&self, kind: Kind) {
        self.order(Order::Start(kind));
    }

    pub fn end(&self, signal: &'static str) {
        self.order(Order::End(signal));
    }

    fn order(&self, order: Order) {
        let (answer, answered) = channel();
        self.orders
            .send((order, answer))
            .expect("a broker's thread");
        if let Err(problem) = answered.recv().expect("an answer of a broker's thread") {
            panic!("{problem}");
        }
    }
}

fn keep(place: &Place, commands: &Commands, inbox: &Receiver<(Order, Sender<Result<(), String>>)>) {
    let mut helpers = Vec::new();
    let mut server: Option<Child> = None;
    while let Ok((order, answer)) = inbox.recv() {
        let done = match order {
            Order::Start(kind) => start(place, commands, &mut helpers, &mut server, kind),
            Order::End(signal) => {
                if let Some(mut child) = server.take() {
                    end(&mut child, signal);
                }
                Ok(())
            }
        };
        // Whoever asked may have failed meanwhile.
        let _ = answer.send(done);
    }
    // Nobody can ask any more.
    for child in server.iter_mut().chain(&mut helpers) {
        end(child, "KILL");
    }
    let _ = std::fs::remove_dir_all(place.dir());
}

fn start(
    place: &Place,
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
        for words in &commands.helpers {
            helpers.push(spawn(place, words, &commands.env)?);
        }
    }
    let before = place.log().len();
    let mut child = spawn(place, &commands.server, &commands.env)?;
    let end = Instant::now() + DEADLINE;
    while !(commands.ready)(place.log().get(before..).unwrap_or_default()) {
        let name = kind.name();
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("{name} ended with {status}:\n{}", place.log()));
        }
        if Instant::now() > end {
            return Err(format!("{name} does not answer:\n{}", place.log()));
        }
        std::thread::sleep(PAUSE);
    }
    *server = Some(child);
    Ok(())
}

fn spawn(place: &Place, words: &[String], env: &[(&str, String)]) -> Result<Child, String> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(place.dir().join("log"))
        .map_err(|error| format!("a broker's log: {error}"))?;
    let errors = log.try_clone().map_err(|error| error.to_string())?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .args(words)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir(place.dir())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("setpriv {words:?}: {error}"))
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
        std::thread::sleep(PAUSE);
    }
}
