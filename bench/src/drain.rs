//! Drains a queue with workers: measures the rate and checks that each item was handled once.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use sqlx::{Connection, PgConnection};
use tokio::sync::mpsc;

use crate::adapter::{Adapter, Done, Event, Request};
use crate::cluster::Cluster;
use crate::install::Program;
use crate::peer::{CompletionQuery, Peer};

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// All items are handled, and none is left in the database.
    Empty,
    /// This many items have reached a handler.
    Reached(u64),
    /// Empty, or after this time.
    EmptyOr(Duration),
}

/// A run without progress for this long has failed.
const STALL_TIMEOUT: Duration = Duration::from_secs(40);

/// The result of a run.
#[derive(Debug)]
pub struct DrainResult {
    /// Items per second, from the first handler call.
    pub rate: f64,
    /// The adapters' settings.
    pub settings: String,
    /// Resident memory of the first worker: seconds since go, bytes.
    pub memory: VecDeque<(f64, u64)>,
    /// Item and time of its start, if requested.
    pub started: Vec<(u64, u64)>,
    /// Queries of the harness itself, to be subtracted from the commits.
    pub harness_queries: i64,
}

/// Worker processes of one run.
#[derive(Debug)]
pub struct WorkerGroup {
    workers: Vec<Adapter>,
    settings: String,
}

/// An event of one worker.
enum WorkerEvent {
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

impl WorkerGroup {
    /// Starts this many processes.
    pub async fn start(
        peer: &Peer,
        program: &Program,
        url: &str,
        request: &Request,
        processes: usize,
    ) -> Result<Self> {
        let mut workers = Vec::new();
        for _ in 0..processes {
            workers.push(Adapter::start(peer.name, program, url, request).await?);
        }
        let settings = workers
            .first()
            .map(|worker| worker.settings.clone())
            .unwrap_or_default();
        Ok(Self { workers, settings })
    }

    /// Runs them until `count` items are handled.
    pub async fn drain(
        self,
        cluster: &Cluster,
        peer: &Peer,
        database: &str,
        count: u64,
        until: Until,
    ) -> Result<DrainResult> {
        let mut connection = cluster.connect(database).await?;
        let mut monitor = Monitor::start(self).await?;
        let mut harness_queries = 0;
        let mut last = 0;
        let mut moved = (0, Instant::now());
        let over = loop {
            monitor.poll(Duration::from_millis(2)).await?;
            let handled = monitor.handled();
            let passed = monitor.begun.elapsed();
            match until {
                Until::Reached(enough) if handled >= enough => break monitor.latest(),
                Until::EmptyOr(limit) if passed >= limit => break now(),
                Until::Empty | Until::EmptyOr(_) if handled >= count => {
                    harness_queries += 1;
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
            if moved.1.elapsed() > STALL_TIMEOUT {
                bail!(
                    "{} stalled at {handled} of {count} items handled, {last} left in its tables",
                    peer.name
                );
            }
        };
        let handled = monitor.handled();
        let first = monitor.first();
        let seconds = over.saturating_sub(first).max(1) as f64 / 1e6;
        let memory = std::mem::take(&mut monitor.memory);
        let settings = monitor.settings.clone();
        let started = if matches!(until, Until::Reached(_)) {
            monitor.kill().await?;
            Vec::new()
        } else {
            let ended = monitor.finish().await?;
            let remaining = left(&mut connection, peer, count).await?;
            harness_queries += 1;
            check(peer, count, remaining, &ended)?;
            ended.into_iter().flat_map(|done| done.times).collect()
        };
        connection.close().await?;
        Ok(DrainResult {
            rate: handled as f64 / seconds,
            settings,
            memory,
            started,
            harness_queries,
        })
    }
}

/// Checks that every item was handled once: by the number of calls, the sum of the items' numbers, and the database.
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

/// The number of unfinished items in the database.
pub async fn left(connection: &mut PgConnection, peer: &Peer, count: u64) -> Result<i64> {
    let number = match peer.completion {
        CompletionQuery::Left(sql) => sqlx::query_scalar(sql).fetch_one(connection).await?,
        CompletionQuery::Done(sql) => {
            let done: i64 = sqlx::query_scalar(sql).fetch_one(connection).await?;
            i64::try_from(count).unwrap_or(i64::MAX) - done
        }
    };
    Ok(number)
}

/// Collects the events of all workers.
struct Monitor {
    events: mpsc::UnboundedReceiver<WorkerEvent>,
    stops: Vec<mpsc::UnboundedSender<bool>>,
    counts: Vec<(u64, u64, u64)>,
    ended: Vec<Option<Done>>,
    begun: Instant,
    sampled: Instant,
    pid: Option<u32>,
    memory: VecDeque<(f64, u64)>,
    settings: String,
}

impl Monitor {
    async fn start(group: WorkerGroup) -> Result<Self> {
        let WorkerGroup {
            mut workers,
            settings,
        } = group;
        let pid = workers.first().and_then(Adapter::pid);
        let (sender, events) = mpsc::unbounded_channel();
        let mut stops = Vec::new();
        let size = workers.len();
        for adapter in &mut workers {
            adapter.signal().await?;
        }
        let begun = Instant::now();
        for (worker, adapter) in workers.into_iter().enumerate() {
            let (stop, stopped) = mpsc::unbounded_channel();
            stops.push(stop);
            tokio::spawn(forward(worker, adapter, sender.clone(), stopped));
        }
        Ok(Self {
            events,
            stops,
            counts: vec![(0, 0, 0); size],
            ended: (0..size).map(|_| None).collect(),
            begun,
            sampled: begun,
            pid,
            memory: VecDeque::new(),
            settings,
        })
    }

    /// Processes pending events; waits at most `timeout` for the first.
    async fn poll(&mut self, timeout: Duration) -> Result<()> {
        if let Ok(Some(event)) = tokio::time::timeout(timeout, self.events.recv()).await {
            self.record(event)?;
        }
        while let Ok(event) = self.events.try_recv() {
            self.record(event)?;
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

    fn record(&mut self, event: WorkerEvent) -> Result<()> {
        match event {
            WorkerEvent::Progress {
                worker,
                handled,
                first,
                at,
            } => {
                if let Some(count) = self.counts.get_mut(worker) {
                    *count = (handled, first, at);
                }
            }
            WorkerEvent::Ended { worker, done } => {
                if let Some(slot) = self.ended.get_mut(worker) {
                    *slot = Some(done?);
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

    /// Stops all workers gracefully and returns their results.
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
            self.poll(Duration::from_millis(50)).await?;
        }
        Ok(self.ended.into_iter().flatten().collect())
    }

    /// Kills all workers.
    async fn kill(mut self) -> Result<()> {
        for stop in &self.stops {
            let _ = stop.send(false);
        }
        // The channel closes when the last forwarder has ended.
        while self.events.recv().await.is_some() {}
        Ok(())
    }
}

/// Forwards a worker's events until it is told to stop (true) or to be killed (false).
async fn forward(
    worker: usize,
    mut adapter: Adapter,
    events: mpsc::UnboundedSender<WorkerEvent>,
    mut stopped: mpsc::UnboundedReceiver<bool>,
) {
    let done = loop {
        tokio::select! {
            line = adapter.next() => match line {
                Ok(Event::Progress { handled, first, at }) => {
                    let _ = events.send(WorkerEvent::Progress { worker, handled, first, at });
                }
                Ok(Event::Ready { .. }) => {}
                Ok(Event::Done(done)) => break Ok(done),
                Err(error) => break Err(error),
            },
            graceful = stopped.recv() => {
                if graceful != Some(true) {
                    let _ = adapter.kill().await;
                    return;
                }
                break match adapter.signal().await {
                    Ok(()) => adapter.done().await,
                    Err(error) => Err(error),
                };
            }
        }
    };
    let _ = events.send(WorkerEvent::Ended { worker, done });
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
