//! Workers and producers are killed and frozen under load.
//!
//! Only workers that hold leases are struck, and each is followed by a new one. A producer is killed wherever it is, in
//! the middle of a transaction mostly.

use std::time::{Duration, Instant};

use postrider_testkit::eventually;
use sqlx::PgPool;

use crate::check::{Allowed, Report, check};
use crate::dice::Dice;
use crate::journal::Journal;
use crate::program::{Child, Role};
use crate::scale;
use crate::stage::{Place, Stage, finished};

const LEASE: Duration = Duration::from_millis(1_500);
const WORKERS: usize = 4;
const PRODUCERS: usize = 2;
/// Number of kills per round; then everything is checked and the next round starts.
const KILLS_PER_STAGE: usize = 500;
/// How many items of one worker can be between lookup and call at once: four of each of five kinds, one rescued.
const IN_HAND: usize = 21;

const HOLDERS: &str = "
    select distinct w.name from postrider.outbox o join postrider.worker w on w.id = o.lease_owner
    where o.lease_until > now()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_and_freezing_workers_and_producers_loses_nothing_and_doubles_nothing() {
    let mut dice = Dice::of("kills");
    let (mut left, mut killed) = (scale::kills(), 0);
    while left > 0 {
        let kills = left.min(KILLS_PER_STAGE);
        let report = play(kills, &mut dice).await;
        left -= kills;
        killed += kills;
        println!("{killed} kills: {report:?}");
        assert!(
            report.lost_workers > 0 && report.done > kills,
            "the kills met no work: {report:?}"
        );
    }
}

async fn play(kills: usize, dice: &mut Dice) -> Report {
    let stage = Stage::new().await;
    let pool = stage.db.pool();
    let mut crew = Crew::new(stage.place(), dice.split());
    let mut freezes = 0;
    for kill in 0..kills {
        crew.kill_a_holder(&pool).await;
        if kill % 5 == 1 {
            freezes += usize::from(crew.freeze_a_holder(&pool).await);
        }
        if kill % 5 == 3 {
            crew.kill_a_producer().await;
        }
        crew.thaw(Instant::now());
    }
    crew.thaw_all();
    crew.end_producers().await;
    finished(&pool).await;
    crew.end_workers().await;
    let allowed = Allowed {
        unplanned: false,
        repeats: freezes * IN_HAND,
    };
    check(&pool, &crew.journal, &stage.outside, allowed).await
}

struct Crew {
    place: Place,
    dice: Dice,
    workers: Vec<(String, Child)>,
    producers: Vec<Child>,
    frozen: Vec<(String, Instant)>,
    journal: Journal,
    started: usize,
}

impl Crew {
    fn new(place: Place, dice: Dice) -> Self {
        let mut crew = Self {
            place,
            dice,
            workers: Vec::new(),
            producers: Vec::new(),
            frozen: Vec::new(),
            journal: Journal::default(),
            started: 0,
        };
        for _ in 0..PRODUCERS {
            let producer = crew.start(Role::Producer).1;
            crew.producers.push(producer);
        }
        for _ in 0..WORKERS {
            let worker = crew.start(Role::Worker);
            crew.workers.push(worker);
        }
        crew
    }

    fn start(&mut self, role: Role) -> (String, Child) {
        self.started += 1;
        let name = format!("p{}", self.started);
        let seed = self.dice.seed();
        let child = Child::start(role, &self.place, &name, seed, LEASE, "");
        (name, child)
    }

    /// The worker to strike next: one that holds leases and is not frozen.
    async fn holder(&mut self, pool: &PgPool) -> usize {
        let holders = eventually("a worker holds leases", async || {
            let names: Vec<String> = sqlx::query_scalar(HOLDERS)
                .fetch_all(pool)
                .await
                .map_err(|error| error.to_string())?;
            let frozen = |name: &String| self.frozen.iter().any(|(other, _)| other == name);
            let known: Vec<usize> = (0..self.workers.len())
                .filter(|&at| names.contains(&self.workers[at].0) && !frozen(&self.workers[at].0))
                .collect();
            if known.is_empty() {
                Err(format!("{names:?}"))
            } else {
                Ok(known)
            }
        })
        .await;
        *self.dice.pick(&holders)
    }

    async fn kill_a_holder(&mut self, pool: &PgPool) {
        let at = self.holder(pool).await;
        tokio::time::sleep(self.dice.millis(0, 30)).await;
        self.workers[at].1.program.kill().await;
        self.workers[at] = self.start(Role::Worker);
    }

    /// For a while that may be longer than a lease. Never all of them: somebody must work.
    async fn freeze_a_holder(&mut self, pool: &PgPool) -> bool {
        if self.frozen.len() + 2 > WORKERS {
            return false;
        }
        let at = self.holder(pool).await;
        let until = Instant::now() + self.dice.millis(100, 4_000);
        let (name, worker) = &mut self.workers[at];
        worker.program.freeze();
        self.frozen.push((name.clone(), until));
        true
    }

    fn thaw(&mut self, now: Instant) {
        let (over, still): (Vec<_>, Vec<_>) = std::mem::take(&mut self.frozen)
            .into_iter()
            .partition(|(_, until)| *until <= now);
        self.frozen = still;
        for (name, _) in over {
            if let Some((_, worker)) = self.workers.iter_mut().find(|(other, _)| *other == name) {
                worker.program.thaw();
            }
        }
    }

    fn thaw_all(&mut self) {
        let end = self.frozen.iter().map(|(_, until)| *until).max();
        self.thaw(end.unwrap_or_else(Instant::now));
    }

    async fn kill_a_producer(&mut self) {
        let at = self.dice.below(self.producers.len());
        let next = self.start(Role::Producer).1;
        let last = std::mem::replace(&mut self.producers[at], next);
        self.end_producer(last).await;
    }

    async fn end_producers(&mut self) {
        for producer in std::mem::take(&mut self.producers) {
            self.end_producer(producer).await;
        }
    }

    async fn end_producer(&mut self, mut producer: Child) {
        producer.program.kill().await;
        self.journal.read(&producer.journal());
    }

    async fn end_workers(&mut self) {
        for (_, mut worker) in std::mem::take(&mut self.workers) {
            worker.program.kill().await;
        }
    }
}
