//! The database server crashes under load: a backend is killed (all connections break and the log is replayed), or the
//! whole server ends at once, as by a power cut that spares the machine. The disk is waited for, as in production.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postrider_embedded::{Options, Postgres};
use postrider_testkit::eventually;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::check::{Allowed, check};
use crate::dice::Dice;
use crate::journal::{Journal, Paper};
use crate::outside::Outside;
use crate::produce::Producer;
use crate::scale;
use crate::stage::{Place, finished, prepare};
use crate::work::supervise;

const LEASE: Duration = Duration::from_millis(1_500);
const WORKERS: usize = 2;
const PRODUCERS: usize = 2;
/// Number of crashes after which everything is checked and a new cluster starts. Crashes mostly wait, so two clusters run at a time.
const CRASHES_PER_STAGE: usize = 100;
const AT_ONCE: usize = 2;

const BACKENDS: &str = "
    select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
const EFFECTS: &str = "select count(*) from proof.effect";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_again_and_again_loses_nothing_and_doubles_nothing() {
    let mut dice = Dice::of("crashes");
    let mut left = scale::crashes();
    while left > 0 {
        let crashes = left.min(CRASHES_PER_STAGE * AT_ONCE);
        let half = crashes / 2;
        tokio::join!(play(half, dice.split()), play(crashes - half, dice.split()));
        left -= crashes;
    }
}

async fn play(crashes: usize, dice: Dice) {
    let dir = postrider_testkit::builders::data_dir();
    let server = Server::start(Options::new(dir.path())).await;
    under_load(server, crashes, dice, async |server, watch, dice| {
        if dice.percent(50) {
            server.kill_a_backend(watch, dice).await;
        } else {
            server.crash_and_restart().await;
        }
    })
    .await;
}

/// Crashes a server this number of times while producers and workers use it; then checks everything and stops it.
pub async fn under_load(
    mut server: Server,
    strikes: usize,
    mut dice: Dice,
    mut strike: impl AsyncFnMut(&mut Server, &PgPool, &mut Dice),
) {
    let outside = Outside::start().await;
    let place = Place {
        database: server.postgres.as_ref().unwrap().connect_options(),
        outside: outside.address,
    };
    let mut connection = PgConnection::connect_with(&place.database).await.unwrap();
    prepare(&mut connection).await.unwrap();
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let produced = stop.child_token();
    let (mut papers, mut producers) = (Vec::new(), Vec::new());
    for n in 0..PRODUCERS {
        let paper = Paper::default();
        let producer = Producer::new(place.pool(4), format!("p{n}"), dice.split(), paper.pen());
        producers.push(tokio::spawn(producer.run(produced.clone())));
        papers.push(paper);
    }
    for n in 0..WORKERS {
        let (place, stop) = (place.clone(), stop.clone());
        tokio::spawn(supervise(place, 3, format!("w{n}"), LEASE, stop));
    }
    let watch = place.pool(1);
    for _ in 0..strikes {
        let effects = work_goes_on(&watch, 0).await;
        strike(&mut server, &watch, &mut dice).await;
        work_goes_on(&watch, effects).await;
    }
    produced.cancel();
    for producer in producers {
        producer.await.unwrap();
    }
    finished(&watch).await;
    stop.cancel();
    let mut journal = Journal::default();
    papers.iter().for_each(|paper| journal.read(&paper.lines()));
    let report = check(&watch, &journal, &outside, Allowed::default()).await;
    println!("{strikes} strikes: {report:?}");
    assert!(report.done > strikes, "they met no work: {report:?}");
    watch.close().await;
    server.postgres.take().unwrap().stop().await.unwrap();
}

/// Waits until there are more effects than this; returns their number.
async fn work_goes_on(pool: &PgPool, after: i64) -> i64 {
    eventually("work goes on", async || {
        let effects: i64 = sqlx::query_scalar(EFFECTS)
            .fetch_one(pool)
            .await
            .map_err(|error| error.to_string())?;
        if effects > after {
            Ok(effects)
        } else {
            Err(format!("{effects} of {after}"))
        }
    })
    .await
}

/// A server of the scenario's own.
pub struct Server {
    /// None only while it is restarted.
    postgres: Option<Postgres>,
    options: Options,
}

impl Server {
    pub async fn start(options: Options) -> Self {
        let postgres = Postgres::start(options.clone()).await.unwrap();
        Self {
            postgres: Some(postgres),
            options,
        }
    }

    /// kill -9 of any backend: the server breaks all connections and recovers.
    async fn kill_a_backend(&self, pool: &PgPool, dice: &mut Dice) {
        let pids = eventually("somebody else is connected", async || {
            let pids: Vec<i32> = sqlx::query_scalar(BACKENDS)
                .fetch_all(pool)
                .await
                .map_err(|error| error.to_string())?;
            if pids.is_empty() {
                Err("nobody".to_owned())
            } else {
                Ok(pids)
            }
        })
        .await;
        // It may have ended by itself meanwhile.
        let _ = kill(Pid::from_raw(*dice.pick(&pids)), Signal::SIGKILL);
    }

    /// The server ends at once, without a checkpoint, and is started again.
    async fn crash_and_restart(&mut self) {
        let pid = eventually("the server runs", async || self.postgres.as_ref()?.pid()).await;
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGQUIT).unwrap();
        // Its keeper would wait longer and longer before it starts a server that ends so often.
        self.postgres.take().unwrap().stop().await.unwrap();
        let postgres = Postgres::start(self.options.clone()).await;
        self.postgres = Some(postgres.unwrap());
    }
}
