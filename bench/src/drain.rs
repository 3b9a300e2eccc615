//! Workers on a queue: how fast they empty it, and the proof that each item was handled once.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use sqlx::{Connection, PgConnection};
use tokio::sync::mpsc;

use crate::adapter::{Adapter, Done, Line, Order};
use crate::cluster::Cluster;
use crate::install::Program;
use crate::peer::{Books, Peer};

/// When a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// All items are handled and the database says that none is left.
    Empty,
    /// So many items have reached a handler; the rest does not matter.
    Reached(u64),
    /// Empty, or this much time has passed.
    EmptyOr(Duration),
}

/// A run in which nothing happens for this long will not end at all.
const PATIENCE: Duration = Duration::from_secs(40);

/// What a run showed.
#[derive(Debug)]
pub struct Drained {
    /// Items a second, from the first handler call on.
    pub rate: f64,
    /// The adapters' settings in words.
    pub settings: String,
    /// Resident memory of the first worker: seconds since go, bytes.
    pub memory: VecDeque<(f64, u64)>,
    /// Which item started when, if that was asked for.
    pub started: Vec<(u64, u64)>,
    /// How often the harness itself asked the database; to be taken off its commits.
    pub questions: i64,
}

/// Workers that are told to go and watched until they are done.
#[derive(Debug)]
pub struct Crew {
    workers: Vec<Adapter>,
    settings: String,
}

/// One worker's latest words.
enum Word {
    Progress {
        worker: usize,
        handled: u64,
        first: u64,
        at: u64,
    },
    Ended {
        worker: usize,
        done: Result<Done>,
    },
}

impl Crew {
    /// Starts so many processes.
    pub async fn hire(
        peer: &Peer,
        program: &Program,
        url: &str,
        order: &Order,
        processes: usize,
    ) -> Result<Self> {
        let mut workers = Vec::new();
        for _ in 0..processes {
            workers.push(Adapter::start(peer.name, program, url, order).await?);
        }
        let settings = workers
            .first()
            .map(|worker| worker.settings.clone())
            .unwrap_or_default();
        Ok(Self { workers, settings })
    }

    /// Runs them over `count` items that are waiting, or will be.
    pub async fn drain(
        self,
        cluster: &Cluster,
        peer: &Peer,
        database: &str,
        count: u64,
        until: Until,
    ) -> Result<Drained> {
        let mut connection = cluster.connect(database).await?;
        let mut watch = Watch::start(self).await?;
        let mut questions = 0;
        let mut last = 0;
        let mut moved = (0, Instant::now());
        let over = loop {
            watch.listen(Duration::from_millis(2)).await?;
            let handled = watch.handled();
            let passed = watch.begun.elapsed();
            match until {
                Until::Reached(enough) if handled >= enough => break watch.latest(),
                Until::EmptyOr(limit) if passed >= limit => break now(),
                Until::Empty | Until::EmptyOr(_) if handled >= count => {
                    questions += 1;
                    last = left(&mut connection, peer, count).await?;
                    if last <= 0 {
                        break now();
                    }
                }
                _ => {}
            }
            if handled != moved.0 {
                moved = (handled, Instant::now());
            }
            if moved.1.elapsed() > PATIENCE {
                bail!(
                    "{} stands still at {handled} of {count} items handled, {last} left in its tables",
                    peer.name
                );
            }
        };
        let handled = watch.handled();
        let first = watch.first();
        let seconds = over.saturating_sub(first).max(1) as f64 / 1e6;
        let memory = std::mem::take(&mut watch.memory);
        let settings = watch.settings.clone();
        let started = if matches!(until, Until::Reached(_)) {
            watch.abandon().await?;
            Vec::new()
        } else {
            let ended = watch.finish().await?;
            let remaining = left(&mut connection, peer, count).await?;
            questions += 1;
            check(peer, count, remaining, &ended)?;
            ended.into_iter().flat_map(|done| done.times).collect()
        };
        connection.close().await?;
        Ok(Drained {
            rate: handled as f64 / seconds,
            settings,
            memory,
            started,
            questions,
        })
    }
}

/// Every item once: by the handlers' count, by the sum of the items' numbers, and by the database.
fn check(peer: &Peer, count: u64, remaining: i64, ended: &[Done]) -> Result<()> {
    let handled: u64 = ended.iter().map(|done| done.handled).sum();
    let sum: u64 = ended.iter().map(|done| done.sum).sum();
    let name = peer.name;
    let finished = count.saturating_sub(u64::try_from(remaining.max(0)).unwrap_or(0));
    ensure!(
        handled == finished,
        "{name} handled {handled} items, but its tables say that {finished} of {count} are finished"
    );
    ensure!(
        handled != count || sum == count * count.saturating_sub(1) / 2,
        "{name} handled some items twice and others never"
    );
    Ok(())
}

/// What the database says is left.
pub async fn left(connection: &mut PgConnection, peer: &Peer, count: u64) -> Result<i64> {
    let number = match peer.books {
        Books::Left(sql) => sqlx::query_scalar(sql).fetch_one(connection).await?,
        Books::Done(sql) => {
            let done: i64 = sqlx::query_scalar(sql).fetch_one(connection).await?;
            i64::try_from(count).unwrap_or(i64::MAX) - done
        }
    };
    Ok(number)
}

/// What all workers have said so far.
struct Watch {
    words: mpsc::UnboundedReceiver<Word>,
    stops: Vec<mpsc::UnboundedSender<bool>>,
    counts: Vec<(u64, u64, u64)>,
    ended: Vec<Option<Done>>,
    begun: Instant,
    sampled: Instant,
    pid: Option<u32>,
    memory: VecDeque<(f64, u64)>,
    settings: String,
}

impl Watch {
    async fn start(crew: Crew) -> Result<Self> {
        let pid = crew.workers.first().and_then(Adapter::pid);
        let (sender, words) = mpsc::unbounded_channel();
        let mut stops = Vec::new();
        let size = crew.workers.len();
        let mut workers = crew.workers;
        for adapter in &mut workers {
            adapter.tell().await?;
        }
        let begun = Instant::now();
        for (worker, adapter) in workers.into_iter().enumerate() {
            let (stop, stopped) = mpsc::unbounded_channel();
            stops.push(stop);
            tokio::spawn(relay(worker, adapter, sender.clone(), stopped));
        }
        Ok(Self {
            words,
            stops,
            counts: vec![(0, 0, 0); size],
            ended: (0..size).map(|_| None).collect(),
            begun,
            sampled: begun,
            pid,
            memory: VecDeque::new(),
            settings: crew.settings,
        })
    }

    /// Takes in what was said, for a moment at most.
    async fn listen(&mut self, moment: Duration) -> Result<()> {
        if let Ok(Some(word)) = tokio::time::timeout(moment, self.words.recv()).await {
            self.note(word)?;
        }
        while let Ok(word) = self.words.try_recv() {
            self.note(word)?;
        }
        if self.sampled.elapsed() >= Duration::from_millis(50) {
            self.sampled = Instant::now();
            if let Some(bytes) = self.pid.and_then(resident) {
                self.memory
                    .push_back((self.begun.elapsed().as_secs_f64(), bytes));
            }
        }
        Ok(())
    }

    fn note(&mut self, word: Word) -> Result<()> {
        match word {
            Word::Progress {
                worker,
                handled,
                first,
                at,
            } => {
                if let Some(count) = self.counts.get_mut(worker) {
                    *count = (handled, first, at);
                }
            }
            Word::Ended { worker, done } => {
                if let Some(place) = self.ended.get_mut(worker) {
                    *place = Some(done?);
                }
            }
        }
        Ok(())
    }

    fn handled(&self) -> u64 {
        self.counts.iter().map(|(handled, _, _)| handled).sum()
    }

    fn first(&self) -> u64 {
        let begun = self
            .counts
            .iter()
            .map(|(_, first, _)| *first)
            .filter(|first| *first > 0);
        begun.min().unwrap_or_else(now)
    }

    fn latest(&self) -> u64 {
        self.counts
            .iter()
            .map(|(_, _, at)| *at)
            .max()
            .unwrap_or_else(now)
    }

    /// Lets everybody finish what they hold, and hears their last lines.
    async fn finish(mut self) -> Result<Vec<Done>> {
        for stop in &self.stops {
            let _ = stop.send(true);
        }
        let begun = Instant::now();
        while self.ended.iter().any(Option::is_none) {
            ensure!(
                begun.elapsed() < Duration::from_secs(60),
                "a worker did not stop within a minute"
            );
            self.listen(Duration::from_millis(50)).await?;
        }
        Ok(self.ended.into_iter().flatten().collect())
    }

    /// Ends everybody at once.
    async fn abandon(mut self) -> Result<()> {
        for stop in &self.stops {
            let _ = stop.send(false);
        }
        // A killed worker's end is no news; the channel closes when the last relay has ended.
        while self.words.recv().await.is_some() {}
        Ok(())
    }
}

/// Passes a worker's words on until it is told to stop (true) or is ended (false).
async fn relay(
    worker: usize,
    mut adapter: Adapter,
    words: mpsc::UnboundedSender<Word>,
    mut stopped: mpsc::UnboundedReceiver<bool>,
) {
    let done = loop {
        tokio::select! {
            line = adapter.next() => match line {
                Ok(Line::Progress { handled, first, at }) => {
                    let _ = words.send(Word::Progress { worker, handled, first, at });
                }
                Ok(Line::Ready { .. }) => {}
                Ok(Line::Done(done)) => break Ok(done),
                Err(error) => break Err(error),
            },
            gently = stopped.recv() => {
                if gently != Some(true) {
                    let _ = adapter.kill().await;
                    return;
                }
                break match adapter.tell().await {
                    Ok(()) => adapter.done().await,
                    Err(error) => Err(error),
                };
            }
        }
    };
    let _ = words.send(Word::Ended { worker, done });
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}
