//! One runner per periodic task, taken over when it dies.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use postrider::leader::{self, FenceError, Leader, Leadership, Periodic, Tick, run_periodic};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::support::{database, eventually, waits_for_a_lock};

/// Long enough for a busy machine: no test waits for it to end.
const LEASE: Duration = Duration::from_secs(60);

fn candidate(pool: &PgPool) -> Leader {
    Leader::new(pool.clone(), "sweep", LEASE).unwrap()
}

async fn elected(pool: &PgPool) -> Leadership {
    candidate(pool).campaign().await.unwrap().unwrap()
}

/// Makes the lease expire.
async fn expire_lease(pool: &PgPool) {
    let sql = "update postrider.leader set until = clock_timestamp() - interval '1 second'";
    sqlx::query(sql).execute(pool).await.unwrap();
}

async fn row(pool: &PgPool) -> Option<leader::LeaderRow> {
    let mut connection = pool.acquire().await.unwrap();
    leader::all(&mut connection).await.unwrap().pop()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_candidates_one_is_elected() {
    let db = database().await;
    let campaigns = (0..16).map(|_| {
        let candidate = candidate(&db.pool());
        tokio::spawn(async move { candidate.campaign().await.unwrap() })
    });
    let mut elected = Vec::new();
    for campaign in campaigns.collect::<Vec<_>>() {
        elected.extend(campaign.await.unwrap());
    }
    assert_eq!(elected.len(), 1);
    assert_eq!(elected[0].term(), 1);
    let row = row(&db.pool()).await.unwrap();
    assert!(row.live && row.term == 1 && row.holder.is_some());
}

#[tokio::test]
async fn a_dead_leader_is_replaced_in_a_higher_term_and_cannot_renew() {
    let db = database().await;
    let mut old = elected(&db.pool()).await;
    assert!(old.renew().await.unwrap());
    assert!(candidate(&db.pool()).campaign().await.unwrap().is_none());
    expire_lease(&db.pool()).await;
    let mut new = elected(&db.pool()).await;
    assert_eq!(new.term(), 2);
    assert!(!old.renew().await.unwrap());
    drop(old);
    assert!(new.renew().await.unwrap());
}

#[tokio::test]
async fn a_late_heartbeat_keeps_a_lease_that_nobody_took() {
    let db = database().await;
    let mut leadership = elected(&db.pool()).await;
    expire_lease(&db.pool()).await;
    assert!(leadership.renew().await.unwrap());
    assert!(candidate(&db.pool()).campaign().await.unwrap().is_none());
}

#[tokio::test]
async fn a_resigned_or_dropped_leadership_is_free_at_once() {
    let db = database().await;
    elected(&db.pool()).await.resign().await.unwrap();
    let second = elected(&db.pool()).await;
    assert_eq!(second.term(), 2);
    drop(second);
    let third = eventually("a third leader", async || {
        candidate(&db.pool()).campaign().await.unwrap()
    })
    .await;
    assert_eq!(third.term(), 3);
}

#[tokio::test]
async fn a_paused_leader_is_stopped_by_its_fence() {
    let db = database().await;
    let paused = elected(&db.pool()).await;
    expire_lease(&db.pool()).await;
    let current = elected(&db.pool()).await;
    // Both believe that they lead: two runners. The fence tells them apart.
    let mut tx = db.pool().begin().await.unwrap();
    let refused = paused.fence(&mut tx).await;
    assert!(
        matches!(refused, Err(FenceError::Lost(ref lost)) if lost.term == 1),
        "{refused:?}"
    );
    current.fence(&mut tx).await.unwrap();
}

#[tokio::test]
async fn no_takeover_during_a_fenced_transaction() {
    let db = database().await;
    let old = elected(&db.pool()).await;
    expire_lease(&db.pool()).await;
    let mut tx = db.pool().begin().await.unwrap();
    old.fence(&mut tx).await.unwrap();
    let candidate = candidate(&db.pool());
    let campaign = tokio::spawn(async move { candidate.campaign().await.unwrap().unwrap().term() });
    waits_for_a_lock(&db.pool()).await;
    tx.commit().await.unwrap();
    assert_eq!(campaign.await.unwrap(), 2);
}

/// A process that runs the task and counts its runs.
struct Runner {
    runs: Arc<AtomicUsize>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Runner {
    fn start(
        pool: &PgPool,
        every: Duration,
        lease: Duration,
        work: impl Fn(Tick) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let work = Arc::new(work);
        let (runs, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let periodic = Periodic::new("sweep", every).lease(lease);
        let counter = Arc::clone(&runs);
        let task = run_periodic(pool.clone(), periodic, stop.clone(), move |tick| {
            counter.fetch_add(1, Ordering::SeqCst);
            let work = Arc::clone(&work);
            async move { work(tick) }
        });
        let task = tokio::spawn(async move { task.await.unwrap() });
        Self { runs, stop, task }
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    async fn has_run(&self, times: usize) {
        eventually(&format!("{times} runs"), async || {
            (self.runs() >= times).then_some(())
        })
        .await;
    }

    async fn stop(self) -> usize {
        self.stop.cancel();
        self.task.await.unwrap();
        self.runs.load(Ordering::SeqCst)
    }
}

const SOON: Duration = Duration::from_millis(5);
const SHORT_LEASE: Duration = Duration::from_millis(600);

#[tokio::test]
async fn another_process_takes_over_when_the_leader_stops() {
    let db = database().await;
    let first = Runner::start(&db.pool(), SOON, SHORT_LEASE, |_| Ok(()));
    first.has_run(3).await;
    let second = Runner::start(&db.pool(), SOON, SHORT_LEASE, |_| Ok(()));
    first.has_run(6).await;
    first.stop().await;
    second.has_run(3).await;
    assert!(row(&db.pool()).await.unwrap().term >= 2);
    second.stop().await;
    assert_eq!(
        row(&db.pool()).await.unwrap().holder,
        None,
        "a clean stop resigns"
    );
}

#[tokio::test]
async fn a_vanished_leader_is_replaced_when_its_lease_expires() {
    let db = database().await;
    let short = Leader::new(db.pool(), "sweep", Duration::from_millis(100)).unwrap();
    // Forgotten, not dropped: a killed process doesn't resign.
    std::mem::forget(short.campaign().await.unwrap().unwrap());
    let runner = Runner::start(&db.pool(), SOON, SHORT_LEASE, |_| Ok(()));
    runner.has_run(1).await;
    assert!(row(&db.pool()).await.unwrap().term >= 2);
    runner.stop().await;
}

#[tokio::test]
async fn failed_and_panicked_runs_do_not_stop_a_periodic_task() {
    let db = database().await;
    let n = AtomicUsize::new(0);
    let runner = Runner::start(&db.pool(), SOON, LEASE, move |_| {
        match n.fetch_add(1, Ordering::SeqCst) {
            0 => Err("the disk is full".to_owned()),
            1 => panic!("a mistake of ours"),
            _ => Ok(()),
        }
    });
    runner.has_run(4).await;
    assert_eq!(row(&db.pool()).await.unwrap().term, 1);
    runner.stop().await;
}

#[tokio::test]
async fn a_new_leader_keeps_the_schedule() {
    let db = database().await;
    let hourly = Duration::from_secs(3600);
    let first = Runner::start(&db.pool(), hourly, LEASE, |_| Ok(()));
    eventually("a recorded run", async || {
        row(&db.pool()).await.and_then(|row| row.ran_at)
    })
    .await;
    assert_eq!(first.stop().await, 1);
    let second = Runner::start(&db.pool(), hourly, LEASE, |_| Ok(()));
    eventually("a second term", async || {
        row(&db.pool()).await.filter(|row| row.term == 2)
    })
    .await;
    assert_eq!(second.stop().await, 0);
}

#[tokio::test]
async fn heartbeats_keep_the_lease_during_a_long_run() {
    let db = database().await;
    let (stop, done) = (CancellationToken::new(), CancellationToken::new());
    let periodic = Periodic::new("sweep", SOON).lease(Duration::from_secs(3));
    let task = run_periodic(db.pool(), periodic, stop.clone(), |tick| {
        let done = done.clone();
        async move {
            done.cancelled().await;
            tick.stop.cancel();
            Ok::<(), String>(())
        }
    });
    let watch = async {
        let begun = eventually("there is a leader", async || row(&db.pool()).await).await;
        let later = |row: &leader::LeaderRow| row.heartbeat > begun.until.unwrap();
        let kept = eventually("a heartbeat after the first lease", async || {
            row(&db.pool()).await.filter(later)
        })
        .await;
        assert_eq!((kept.term, kept.live), (1, true));
        done.cancel();
    };
    let (ended, ()) = tokio::join!(task, watch);
    ended.unwrap();
}

#[tokio::test]
async fn a_run_is_dropped_when_the_lease_is_lost() {
    let db = database().await;
    let stop = CancellationToken::new();
    let periodic = Periodic::new("sweep", SOON).lease(SHORT_LEASE);
    let dropped = CancellationToken::new();
    let task = run_periodic(db.pool(), periodic, stop.clone(), |_| {
        let guard = dropped.clone().drop_guard();
        async move {
            let _guard = guard;
            std::future::pending::<Result<(), String>>().await
        }
    });
    let usurp = async {
        eventually("there is a leader", async || row(&db.pool()).await).await;
        let sql = "update postrider.leader set term = term + 1, until = now() + interval '1 hour'";
        sqlx::query(sql).execute(&db.pool()).await.unwrap();
        dropped.cancelled().await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(task, usurp);
    ended.unwrap();
}

#[tokio::test]
async fn invalid_names_and_leases_are_rejected() {
    let db = database().await;
    assert!(Leader::new(db.pool(), "", LEASE).is_err());
    assert!(Leader::new(db.pool(), "x", Duration::ZERO).is_err());
}
