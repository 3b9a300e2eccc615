//! What the harness itself knows of every call: what was asked, and what the caller was told.
//!
//! Written as lines, so that a producer in a process of its own leaves its journal in the pipe when it is killed:
//! `try <key> <topic> <fails> <lane or ->`, then `ok`, `failed` or `unknown` with the key; nothing if nobody came back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Committed: exactly one effect.
    Ok,
    /// Not committed: no effect.
    Failed,
    /// Nobody knows: no effect or one.
    Unknown,
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    pub topic: String,
    /// Number of attempts that fail by plan.
    pub fails: i32,
    /// The ordering key.
    pub lane: Option<String>,
    pub told: Told,
    /// Which call it was, counted over all producers of this journal.
    pub number: usize,
}

/// Where producers write.
pub type Pen = Arc<dyn Fn(String) + Send + Sync>;

/// Lines in memory, for producers in the test's own process.
#[derive(Debug, Clone, Default)]
pub struct Paper(Arc<Mutex<Vec<String>>>);

impl Paper {
    pub fn pen(&self) -> Pen {
        let lines = Arc::clone(&self.0);
        Arc::new(move |line| lines.lock().unwrap().push(line))
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// All calls by key.
#[derive(Debug, Default)]
pub struct Journal {
    pub calls: BTreeMap<String, Call>,
}

impl Journal {
    /// Takes in the lines of one producer; lines of others between them are passed over.
    pub fn read(&mut self, lines: &[String]) {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["try", key, topic, fails, lane] => {
                    let call = Call {
                        topic: topic.to_owned(),
                        fails: fails.parse().unwrap(),
                        lane: (lane != "-").then(|| lane.to_owned()),
                        told: Told::Unknown,
                        number: self.calls.len(),
                    };
                    let before = self.calls.insert(key.to_owned(), call);
                    assert!(before.is_none(), "two calls with the key {key}");
                }
                ["ok", key] => self.told(key, Told::Ok),
                ["failed", key] => self.told(key, Told::Failed),
                ["unknown", key] => self.told(key, Told::Unknown),
                _ => {}
            }
        }
    }

    fn told(&mut self, key: &str, told: Told) {
        let call = self.calls.get_mut(key).expect("first tried, then told");
        call.told = told;
    }

    pub fn count(&self, told: Told) -> usize {
        self.calls.values().filter(|call| call.told == told).count()
    }
}
