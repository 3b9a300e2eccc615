//! What happens in the demo, scene by scene.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use postrider_embedded::Postgres;
use postrider_engine::{
    lease::{Operator, Queue},
    outbox::{OUTBOX, enqueue_many},
};
use sqlx::PgPool;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use super::{count::Count, letters, workers};
use crate::{
    cli::{
        ConfigOptions,
        output::{Output, Tone},
        serve::Running,
    },
    exit::{Exit, Failure},
    logging,
    roles::{Role, Roles},
};

/// How long any scene may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the audience is told.
const LOOK: Duration = Duration::from_millis(100);

const LEFT: &str = "select count(*) from postrider.outbox where finished_at is null";
const DEAD: &str = "select array_agg(id) from postrider.outbox where state = 'dead'";
const HELD: &str = "
select count(*) from postrider.outbox o join postrider.worker w on w.id = o.lease_owner
where w.name = $1 and o.state = 'leased'";

/// Plays the whole piece; the program is stopped in order at the end, whatever came of it.
pub async fn play(
    data_dir: &Path,
    letters: u32,
    keep: bool,
    output: &Output,
) -> Result<Count, Failure> {
    let dir = data_dir.display().to_string();
    let config = ConfigOptions::default()
        .load(&[
            ("demo", "data_dir", Some(dir.as_str())),
            ("demo", "database.url", Some("")),
            ("demo", "server.listen", Some("127.0.0.1:0")),
            ("demo", "log.level", Some("off")),
        ])?
        .config;
    logging::start(&config.log);
    let stop = CancellationToken::new();
    let began = Instant::now();
    let progress = output.spinner("starting PostgreSQL");
    let running = Running::start(&config, Roles::just(Role::Api), stop.clone()).await?;
    progress.finish_and_clear();
    let stage = Stage { output, began };
    stage.say(
        "started",
        &format!("PostgreSQL, schema and API at http://{}", running.address),
    );
    let result = stage.scenes(&running, letters).await;
    if keep && result.is_ok() {
        output.say(&format!(
            "staying up at http://{}/reference until interrupted",
            running.address
        ));
        let _ = tokio::signal::ctrl_c().await;
    }
    stop.cancel();
    running.until_stopped().await?;
    result
}

struct Stage<'a> {
    output: &'a Output,
    began: Instant,
}

impl Stage<'_> {
    async fn scenes(&self, running: &Running, letters: u32) -> Result<Count, Failure> {
        let pool = running.database().pool();
        let server = running
            .database()
            .embedded()
            .ok_or_else(|| Failure::new(Exit::Failed, "the demo needs the embedded PostgreSQL"))?;
        sqlx::raw_sql(letters::SCHEMA)
            .execute(pool)
            .await
            .map_err(database)?;

        let accepted = self.accept(pool, letters).await?;
        let mut first = workers::start(&server.url())?;
        let mut second = workers::start(&server.url())?;
        let bar = self.output.bar("delivering", accepted.unsigned_abs());
        self.until(pool, &bar, accepted * 3 / 4).await?;
        let recovered = self.kill_worker(pool, &mut first).await?;
        first = workers::start(&server.url())?;
        self.until(pool, &bar, accepted / 2).await?;
        self.kill_database(server, pool).await?;
        self.until(pool, &bar, 0).await?;
        let dead = self.redrive(pool).await?;
        self.until(pool, &bar, 0).await?;
        bar.finish_and_clear();
        self.say("delivered", "nothing waits any more");
        for worker in [&mut first, &mut second] {
            drop(worker.stdin.take());
            let _ = tokio::time::timeout(PATIENCE, worker.wait()).await;
        }
        self.say(
            "stopped",
            "the workers gave nothing back: they had nothing left",
        );
        Count::take(pool, accepted, recovered, dead)
            .await
            .map_err(database)
    }

    /// All letters in one transaction.
    async fn accept(&self, pool: &PgPool, count: u32) -> Result<i64, Failure> {
        let messages = (0..count)
            .map(letters::letter)
            .collect::<Result<Vec<_>, _>>()
            .map_err(engine)?;
        let mut transaction = pool.begin().await.map_err(database)?;
        let enqueued = enqueue_many(&mut transaction, &messages)
            .await
            .map_err(engine)?;
        transaction.commit().await.map_err(database)?;
        self.say(
            "accepted",
            &format!("{} letters in one transaction", enqueued.new),
        );
        i64::try_from(enqueued.new)
            .map_err(|e| Failure::caused(Exit::Failed, "too many letters", &e))
    }

    /// Kills a worker in the middle of its work; returns how many letters it held.
    async fn kill_worker(&self, pool: &PgPool, worker: &mut Child) -> Result<i64, Failure> {
        let name = worker.id().map(|pid| pid.to_string()).unwrap_or_default();
        worker
            .kill()
            .await
            .map_err(|e| Failure::caused(Exit::Failed, "the worker can't be killed", &e))?;
        let held: i64 = sqlx::query_scalar(HELD)
            .bind(&name)
            .fetch_one(pool)
            .await
            .map_err(database)?;
        self.say(
            "killed",
            &format!("kill -9 of worker {name}; it held {held} letters"),
        );
        Ok(held)
    }

    /// Kills the database server and waits until it was brought back.
    async fn kill_database(&self, server: &Postgres, pool: &PgPool) -> Result<(), Failure> {
        let before = server.restarts();
        if let Some(pid) = server.pid().and_then(|pid| i32::try_from(pid).ok()) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|e| {
                Failure::caused(Exit::Failed, "the database server can't be killed", &e)
            })?;
        }
        self.say("killed", "kill -9 of the database server");
        let deadline = Instant::now() + PATIENCE;
        while server.restarts() == before || sqlx::query("select 1").execute(pool).await.is_err() {
            if Instant::now() > deadline {
                return Err(Failure::new(
                    Exit::Failed,
                    "the database server did not come back",
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
        self.say("recovered", "the database server is back, without a hand");
        Ok(())
    }

    /// Shows what is dead, removes the cause, and sends it on its way again.
    async fn redrive(&self, pool: &PgPool) -> Result<i64, Failure> {
        let ids: Option<Vec<i64>> = sqlx::query_scalar(DEAD)
            .fetch_one(pool)
            .await
            .map_err(database)?;
        let ids = ids.unwrap_or_default();
        self.say(
            "dead",
            &format!(
                "{} letters to {}: no such address",
                ids.len(),
                letters::NEW_STREET
            ),
        );
        let queue = Queue::new(&OUTBOX).map_err(engine)?;
        let operator = Operator::new("demo").because("the new street is on the map now");
        let mut transaction = pool.begin().await.map_err(database)?;
        sqlx::query("insert into demo.known_address values ($1)")
            .bind(letters::NEW_STREET)
            .execute(&mut *transaction)
            .await
            .map_err(database)?;
        let redriven = queue
            .redrive(&mut transaction, &operator, &ids)
            .await
            .map_err(engine)?;
        transaction.commit().await.map_err(database)?;
        self.say(
            "redriven",
            &format!(
                "{} dead letters, since the street is on the map now",
                redriven.ids.len()
            ),
        );
        i64::try_from(redriven.ids.len())
            .map_err(|e| Failure::caused(Exit::Failed, "too many letters", &e))
    }

    /// Waits until at most so many letters are unfinished.
    async fn until(
        &self,
        pool: &PgPool,
        bar: &indicatif::ProgressBar,
        left: i64,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A database that is away for a moment is part of the piece.
            if let Ok(now) = sqlx::query_scalar::<_, i64>(LEFT).fetch_one(pool).await {
                bar.set_position(
                    bar.length()
                        .unwrap_or_default()
                        .saturating_sub(now.unsigned_abs()),
                );
                if now <= left {
                    return Ok(());
                }
            }
            if Instant::now() > deadline {
                return Err(Failure::new(
                    Exit::Failed,
                    "the letters were not delivered in time",
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn say(&self, word: &str, what: &str) {
        let time = self.output.paint(
            Tone::Dim,
            &format!("{:>5.1} s", self.began.elapsed().as_secs_f64()),
        );
        self.output.say(&format!("{time}  {word:<10} {what}"));
    }
}

fn database(error: sqlx::Error) -> Failure {
    Failure::caused(Exit::Database, "the demo lost its database", &error)
}

fn engine(error: postrider_engine::Error) -> Failure {
    Failure::caused(Exit::Failed, "the demo can't go on", &error)
}
