//! What happens in the demo, scene by scene.

use std::{path::Path, sync::Arc, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{PgPool, types::time::OffsetDateTime};
use tokio::{sync::RwLock, time::Instant};
use uuid::Uuid;

use super::{
    acts::{self, Acts, Glance, Run, exports},
    board::Board,
    cast::{self, Casting, Part},
    checker::Report,
    door::Door,
    holding::Holding,
    parties::Parties,
    settings,
};
use crate::{
    database::Database,
    exit::{Exit, Failure},
};

/// How long any scene may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often something is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How often the audience is told.
const TELL: Duration = Duration::from_millis(400);

/// The killed worker should hold work of so many services; so long is waited for that.
const SERVICES_HELD: usize = 4;
const WAIT_FOR_HELD: Duration = Duration::from_secs(8);

/// So long the audience waits for the others to take over.
const RECOVERY: Duration = Duration::from_secs(15);

/// The program's usual address, if nobody has it.
const USUAL: &str = "127.0.0.1:8080";
const ANY: &str = "127.0.0.1:0";

/// The stage, the players and the outside world.
pub struct Theatre<'a> {
    database: &'a Database,
    board: &'a Board,
    run: Arc<Run>,
    acts: Arc<Acts>,
    casting: Casting,
    front: Part,
    workers: Vec<Part>,
    /// So many workers were started.
    started: usize,
    held: Holding,
}

impl<'a> Theatre<'a> {
    /// Prepares database and parties, and starts the processes.
    pub async fn open(
        data_dir: &Path,
        database: &'a Database,
        board: &'a Board,
        span: Duration,
        listen: Option<&str>,
    ) -> Result<Self, Failure> {
        let since = prepare(data_dir, database).await?;
        let parties = Arc::new(Parties::open().await?);
        let server = database
            .embedded()
            .ok_or_else(|| Failure::new(Exit::Failed, "the demo needs the embedded PostgreSQL"))?;
        let casting = Casting {
            data_dir: data_dir.to_owned(),
            config: settings::write(data_dir, parties.address)?,
            database_url: server.url(),
        };
        board.say(
            "started",
            &format!("PostgreSQL {}, private", server.version()),
        );
        let wanted = casting.start("front", cast::FRONT, listen.unwrap_or(USUAL));
        let front = match (wanted.await, listen) {
            (Ok(front), _) => front,
            // Whoever has the usual address may keep it.
            (Err(_), None) => casting.start("front", cast::FRONT, ANY).await?,
            (Err(failure), Some(_)) => return Err(failure),
        };
        parties.callback.lead_to(front.address);
        let run = Arc::new(Run {
            name: format!("demo-{}", &Uuid::new_v4().simple().to_string()[..6]),
            since,
            span,
            door: Door::new(front.address)?,
            parties,
            pool: database.pool().clone(),
            store: data_dir.join("store"),
            calm: RwLock::new(()),
        });
        board.say(
            "started",
            &format!("API and console at http://{}/", front.address),
        );
        let mut theatre = Self {
            database,
            board,
            acts: Arc::new(Acts::new(&run)),
            run,
            casting,
            front,
            workers: Vec::new(),
            started: 0,
            held: Holding::default(),
        };
        theatre.hire().await?;
        theatre.hire().await?;
        Ok(theatre)
    }

    /// Where the console is.
    pub fn address(&self) -> String {
        format!("http://{}/", self.front.address)
    }

    /// Sends everybody home.
    pub async fn close(self) {
        let mut parts = self.workers;
        parts.push(self.front);
        parts.iter_mut().for_each(Part::dismiss);
        for part in parts {
            part.gone().await;
        }
    }

    async fn hire(&mut self) -> Result<(), Failure> {
        self.started += 1;
        let name = format!("worker {}", self.started);
        let worker = self.casting.start(&name, cast::WORKER, ANY).await?;
        self.board
            .say("started", &format!("{name}, process {}", worker.pid));
        self.workers.push(worker);
        Ok(())
    }

    /// Plays the whole piece and says what came of it.
    pub async fn play(&mut self) -> Result<Report, Failure> {
        let (acts, board) = (Arc::clone(&self.acts), self.board);
        let telling = async {
            loop {
                board.show(&acts.glances().await);
                tokio::time::sleep(TELL).await;
            }
        };
        tokio::select! {
            report = self.scenes() => report,
            never = acts.protocols.review() => match never {},
            never = telling => never,
        }
    }

    async fn scenes(&mut self) -> Result<Report, Failure> {
        let acts = Arc::clone(&self.acts);
        let planned: u64 = acts
            .glances()
            .await
            .iter()
            .map(|glance| glance.planned)
            .sum();
        let seconds = self.run.span.as_secs();
        let what = format!(
            "{planned} items of five services, over HTTP, in {seconds} s; parties fail on purpose"
        );
        self.board.say("asking", &what);
        tokio::try_join!(acts.ask(), self.disasters())?;
        self.board.say("accepted", "all of them; no more requests");
        self.until("what can be done is done", |glances| {
            let died = ["exports", "orders", "protocols"];
            let missing = |glance: &Glance| died.contains(&glance.name) && glance.dead == 0;
            let waits = |glance: &Glance| glance.done + glance.blocked < glance.accepted;
            !glances
                .iter()
                .any(|glance| missing(glance) || waits(glance))
        })
        .await?;
        let dead = self.dead_letters().await?;
        self.until("everything is done", |glances| {
            let waits = |glance: &Glance| glance.done < glance.accepted || glance.dead > 0;
            acts.evidence.is_told() && !glances.iter().any(waits)
        })
        .await?;
        self.board.say("done", "nothing waits any more");
        self.check(&dead).await
    }

    /// Things that must not matter.
    async fn disasters(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        tokio::time::sleep_until(began + self.run.span.mul_f64(0.25)).await;
        self.kill_worker().await?;
        self.recover().await?;
        self.hire().await?;
        tokio::time::sleep_until(began + self.run.span.mul_f64(0.65)).await;
        self.kill_database().await
    }

    /// kill -9 of a worker in the middle of its work.
    async fn kill_worker(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + WAIT_FOR_HELD;
        let place = loop {
            let mut best = (0, 0, 0);
            for (place, worker) in self.workers.iter().enumerate() {
                let held = Holding::of(&self.run.pool, worker.pid)
                    .await
                    .map_err(database)?;
                best = best.max((held.by_service().len(), held.len(), place));
            }
            if best.0 >= SERVICES_HELD || Instant::now() > deadline {
                break best.2;
            }
            tokio::time::sleep(LOOK).await;
        };
        let worker = self.workers.remove(place);
        let (name, pid) = (worker.name.clone(), worker.pid);
        worker.kill().await?;
        self.held = Holding::of(&self.run.pool, pid).await.map_err(database)?;
        let counts = self.held.by_service();
        let each: Vec<String> = counts
            .iter()
            .map(|(name, n)| format!("{n} {name}"))
            .collect();
        let held = match each.as_slice() {
            [] => "nothing".to_owned(),
            each => each.join(", "),
        };
        self.board.say(
            "killed",
            &format!("kill -9 of {name}, process {pid}; it held {held}"),
        );
        Ok(())
    }

    /// Others take over what it held, when its leases have run out.
    async fn recover(&self) -> Result<(), Failure> {
        let (began, all) = (Instant::now(), self.held.len());
        loop {
            let left = self
                .held
                .unfinished(&self.run.pool)
                .await
                .map_err(database)?;
            let took = began.elapsed();
            if left.len() == 0 || took > RECOVERY {
                let done = all - left.len();
                let what = format!(
                    "{done} of {all} were finished by the other, {:.1} s later",
                    took.as_secs_f64()
                );
                self.board.say("recovered", &what);
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// kill -9 of the database server; it comes back by itself.
    async fn kill_database(&self) -> Result<(), Failure> {
        let Some(server) = self.database.embedded() else {
            return Ok(());
        };
        let _calm = self.run.calm.write().await;
        let before = server.restarts();
        if let Some(pid) = server.pid().and_then(|pid| i32::try_from(pid).ok()) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|e| {
                Failure::caused(Exit::Failed, "the database server can't be killed", &e)
            })?;
            self.board.say(
                "killed",
                &format!("kill -9 of the database server, process {pid}"),
            );
        }
        let began = Instant::now();
        while server.restarts() == before || !answers(&self.run.pool).await {
            if began.elapsed() > PATIENCE {
                let why = "the database server did not come back";
                return Err(Failure::new(Exit::Database, why));
            }
            tokio::time::sleep(LOOK).await;
        }
        let took = began.elapsed().as_secs_f64();
        self.board.say(
            "recovered",
            &format!("the database server is back, {took:.1} s later"),
        );
        Ok(())
    }

    /// Shows what is dead, removes the causes, and sends it on its way again. Says which services had how many.
    async fn dead_letters(&self) -> Result<Vec<&'static str>, Failure> {
        let mut dead = Vec::new();
        for letter in self.run.dead().await? {
            let service = acts::service(&letter);
            let message = letter.message.unwrap_or_default();
            self.board
                .say("dead", &format!("{service}: {} ({message})", letter.code));
            dead.push(service);
        }
        self.run.parties.broker.list()?;
        self.acts.exports.list().await?;
        self.run.parties.stages.lift_embargo();
        self.board.say(
            "mended",
            "the symbol is listed, its prices are there, the embargo is over",
        );
        self.acts.orders.redrive().await?;
        self.acts.exports.redrive().await?;
        self.acts.protocols.redrive().await?;
        let redriven = format!(
            "{} dead letters, through the API of their service",
            dead.len()
        );
        self.board.say("redriven", &redriven);
        Ok(dead)
    }

    /// The independent checker's turn.
    async fn check(&self, dead: &[&'static str]) -> Result<Report, Failure> {
        let left = self
            .held
            .unfinished(&self.run.pool)
            .await
            .map_err(database)?;
        let (held, left) = (self.held.by_service(), left.by_service());
        let mut witnesses = self.acts.witnesses().await?;
        for witness in &mut witnesses {
            let count = |of: &std::collections::BTreeMap<&str, usize>| {
                of.get(witness.service).copied().unwrap_or_default()
            };
            witness.recovered = count(&held) - count(&left);
            witness.dead = dead.iter().filter(|name| **name == witness.service).count();
        }
        self.board.say(
            "checked",
            "what was accepted, against what the outside world has seen",
        );
        Ok(Report::of(&witnesses))
    }

    async fn until(&self, what: &str, fits: impl Fn(&[Glance]) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let glances = self.acts.glances().await;
            if fits(&glances) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let part = |glance: &Glance| {
                    let Glance {
                        name,
                        accepted,
                        done,
                        dead,
                        ..
                    } = glance;
                    format!("{name}: accepted {accepted}, done {done}, dead {dead}")
                };
                let seen: Vec<String> = glances.iter().map(part).collect();
                let why = format!("in vain it was waited until {what}; {}", seen.join("; "));
                return Err(Failure::new(Exit::Failed, why));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The schema, and the source of the exports' rows. Says when the run began.
async fn prepare(data_dir: &Path, database: &Database) -> Result<OffsetDateTime, Failure> {
    let pool = database.pool();
    if exports::is_foreign(pool).await.map_err(self::database)? {
        let why = format!(
            "{} holds a database that is not a demo's, and its work would go to simulated parties; name another directory with --data-dir",
            data_dir.display()
        );
        return Err(Failure::new(Exit::Usage, why));
    }
    // Before anything else: it marks the database as a demo's, should we be stopped in between.
    exports::make_feed(pool).await.map_err(self::database)?;
    database.migrate().await?;
    let now = sqlx::query_scalar("select clock_timestamp()").fetch_one(pool);
    now.await.map_err(self::database)
}

async fn answers(pool: &PgPool) -> bool {
    sqlx::query("select 1").execute(pool).await.is_ok()
}

fn database(error: sqlx::Error) -> Failure {
    Failure::caused(Exit::Database, "the demo lost its database", &error)
}
