//! The browser's process and the pipe to it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::CALL_TIMEOUT;
use crate::servers::log_once;

/// Known names of the binary.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A shell maps the pipes to the file descriptors that the browser expects: 3 to read, 4 to write.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 1>/dev/null 2>&1 </dev/null"#;

const FLAGS: [&str; 9] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    // The pages under test are trusted, and root can't use the sandbox.
    "--no-sandbox",
];

/// The browser of this process.
#[derive(Debug)]
pub(super) struct Pipe {
    writer: Mutex<ChildStdin>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    events: Mutex<HashMap<String, Vec<Value>>>,
    next: AtomicU64,
    _profile: TempDir,
}

/// Started on first use.
pub(super) fn shared() -> Option<&'static Pipe> {
    static PIPE: OnceLock<Option<Pipe>> = OnceLock::new();
    static READER: OnceLock<()> = OnceLock::new();
    static STARTED: Mutex<Option<Child>> = Mutex::new(None);
    let pipe = PIPE.get_or_init(|| {
        let Some(program) = program() else {
            let missing = "no browser is installed (chromium)";
            assert!(
                std::env::var_os("CI").is_none(),
                "{missing}; scripts/setup installs it"
            );
            log_once(&format!("SKIPPED without a browser: {missing}"));
            return None;
        };
        let (pipe, child) = Pipe::start(program);
        *lock(&STARTED) = Some(child);
        Some(pipe)
    });
    let pipe = pipe.as_ref()?;
    READER.get_or_init(|| {
        let child = lock(&STARTED).take().expect("the browser");
        // The browser outlives the tests' runtimes.
        std::thread::Builder::new()
            .name("testkit-browser".to_owned())
            .spawn(move || pipe.read(child))
            .expect("start the browser's thread");
    });
    Some(pipe)
}

fn program() -> Option<&'static str> {
    NAMES.into_iter().find(|name| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    })
}

impl Pipe {
    fn start(program: &str) -> (Self, Child) {
        let profile = tempfile::tempdir().expect("a directory for the browser");
        let mut child = Command::new("sh")
            .args(["-c", START, program])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start the browser");
        let writer = child.stdin.take().expect("a pipe to the browser");
        let pipe = Self {
            writer: Mutex::new(writer),
            waiting: Mutex::default(),
            events: Mutex::default(),
            next: AtomicU64::new(1),
            _profile: profile,
        };
        (pipe, child)
    }

    /// Calls a method of the browser or of one of its pages.
    pub async fn call(&self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).insert(id, answer);
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        lock(&self.writer)
            .write_all(&bytes)
            .expect("the browser listens");
        let answer = tokio::time::timeout(CALL_TIMEOUT, answered).await;
        let answer = answer
            .unwrap_or_else(|_| panic!("the browser does not respond to {method}"))
            .unwrap_or_else(|_| panic!("the browser ended during {method}"));
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// Events of a page so far.
    pub fn events(&self, session: &str) -> Vec<Value> {
        lock(&self.events).get(session).cloned().unwrap_or_default()
    }

    fn read(&self, mut child: Child) {
        let mut messages = BufReader::new(child.stdout.take().expect("a pipe from the browser"));
        let mut bytes = Vec::new();
        while messages
            .read_until(0, &mut bytes)
            .is_ok_and(|read| read > 0)
        {
            bytes.pop();
            let message: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            bytes.clear();
            if let Some(id) = message["id"].as_u64() {
                if let Some(answer) = lock(&self.waiting).remove(&id) {
                    // The caller may have failed meanwhile.
                    let _ = answer.send(message);
                }
            } else if let Some(session) = message["sessionId"].as_str() {
                let mut events = lock(&self.events);
                events.entry(session.to_owned()).or_default().push(message);
            }
        }
        // Fails all pending calls.
        lock(&self.waiting).clear();
        let _ = child.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
