//! An unavailable dependency isn't called, and is called again when it is back.

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use postrider::breaker::{
    self, Breaker, Breakers, Decision, Machine, Outcome, Pass, Settings, State,
};
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::support::{database, eventually};

const OPEN_FOR: Duration = Duration::from_secs(10);

fn settings(threshold: u32, open_for: Duration) -> Settings {
    Settings {
        threshold: NonZeroU32::new(threshold).unwrap(),
        open_for,
    }
}

fn go(machine: &mut Machine, now: Instant) -> Pass {
    match machine.permit(now) {
        Decision::Go(pass) => pass,
        Decision::Wait(time) => panic!("had to wait for {time:?}"),
    }
}

/// A machine that has just opened.
fn open(now: Instant) -> Machine {
    let mut machine = Machine::new(settings(3, OPEN_FOR));
    for _ in 0..3 {
        let pass = go(&mut machine, now);
        machine.record(pass, Outcome::Unavailable, now);
    }
    assert_eq!(machine.state(), State::Open);
    machine
}

#[test]
fn defaults_are_twenty_failures_and_ten_seconds() {
    let settings: Settings = serde_json::from_str("{}").unwrap();
    assert_eq!(
        (settings.threshold.get(), settings.open_for),
        (20, OPEN_FOR)
    );
    assert!(serde_json::from_str::<Settings>(r#"{"threshold":0}"#).is_err());
    assert!(serde_json::from_str::<Settings>(r#"{"open_for":"2m"}"#).is_ok());
}

#[test]
fn only_consecutive_failures_open_the_breaker() {
    let now = Instant::now();
    let mut machine = Machine::new(settings(3, OPEN_FOR));
    for outcome in [
        Outcome::Unavailable,
        Outcome::Unavailable,
        Outcome::Answered,
        Outcome::Unavailable,
        Outcome::Unavailable,
    ] {
        let pass = go(&mut machine, now);
        machine.record(pass, outcome, now);
        assert_eq!(machine.state(), State::Closed);
    }
    let pass = go(&mut machine, now);
    machine.record(pass, Outcome::Unavailable, now);
    assert_eq!((machine.state(), machine.failures()), (State::Open, 3));
}

#[test]
fn only_429_and_503_count_as_unavailable() {
    for status in [429, 503] {
        assert_eq!(Outcome::from_status(status), Outcome::Unavailable);
    }
    for status in [200, 400, 404, 409, 422, 500, 502] {
        assert_eq!(Outcome::from_status(status), Outcome::Answered);
    }
}

#[test]
fn an_open_breaker_rejects_calls_and_tells_the_exact_wait() {
    let now = Instant::now();
    let mut machine = open(now);
    assert_eq!(
        machine.permit(now + Duration::from_secs(4)),
        Decision::Wait(Duration::from_secs(6))
    );
}

#[test]
fn one_probe_at_a_time_decides() {
    let now = Instant::now();
    let later = now + OPEN_FOR;
    let mut machine = open(now);
    let probe = go(&mut machine, later);
    assert_eq!(machine.state(), State::HalfOpen);
    assert!(matches!(machine.permit(later), Decision::Wait(_)));
    machine.record(probe, Outcome::Unavailable, later);
    assert_eq!(machine.permit(later), Decision::Wait(OPEN_FOR));
    let probe = go(&mut machine, later + OPEN_FOR);
    machine.record(probe, Outcome::Answered, later + OPEN_FOR);
    assert_eq!((machine.state(), machine.failures()), (State::Closed, 0));
}

#[test]
fn a_cancelled_probe_lets_the_next_one_probe() {
    let now = Instant::now();
    let mut machine = open(now);
    let probe = go(&mut machine, now + OPEN_FOR);
    machine.abandon(probe);
    go(&mut machine, now + OPEN_FOR);
}

#[test]
fn a_late_answer_does_not_close_an_open_breaker() {
    let now = Instant::now();
    let mut machine = Machine::new(settings(1, OPEN_FOR));
    let (slow, fast) = (go(&mut machine, now), go(&mut machine, now));
    machine.record(fast, Outcome::Unavailable, now);
    machine.record(slow, Outcome::Answered, now);
    assert_eq!(machine.state(), State::Open);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Permit,
    Report(usize, bool),
    Abandon(usize),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Permit),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(which, well)| Step::Report(which, well)),
        1 => any::<usize>().prop_map(Step::Abandon),
        2 => (0..15_000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases()))]

    #[test]
    fn an_open_breaker_admits_no_call_and_a_half_open_one_only_one(
        steps in prop::collection::vec(any_step(), 0..40),
    ) {
        let mut now = Instant::now();
        let mut machine = Machine::new(settings(2, OPEN_FOR));
        let mut passes: Vec<(bool, Pass)> = Vec::new();
        for step in steps {
            match step {
                Step::Permit => if let Decision::Go(pass) = machine.permit(now) {
                    prop_assert!(machine.state() != State::Open);
                    passes.push((machine.state() == State::HalfOpen, pass));
                },
                Step::Report(which, well) if !passes.is_empty() => {
                    let (_, pass) = passes.swap_remove(which % passes.len());
                    machine.record(pass, if well { Outcome::Answered } else { Outcome::Unavailable }, now);
                }
                Step::Abandon(which) if !passes.is_empty() => {
                    let (_, pass) = passes.swap_remove(which % passes.len());
                    machine.abandon(pass);
                }
                Step::Wait(millis) => now += Duration::from_millis(millis),
                Step::Report(..) | Step::Abandon(_) => {}
            }
            let probes = passes.iter().filter(|(probe, _)| *probe).count();
            prop_assert!(probes <= 1, "{} probes", probes);
        }
        // It never gets stuck: with all calls finished and time passed, a call is admitted.
        for (_, pass) in passes {
            machine.abandon(pass);
        }
        prop_assert!(matches!(machine.permit(now + OPEN_FOR), Decision::Go(_)));
    }
}

fn fail(breaker: &Arc<Breaker>) {
    breaker.permit().unwrap().report(Outcome::Unavailable);
}

#[tokio::test]
async fn a_call_through_an_open_breaker_is_not_made() {
    let breaker = Breakers::new(settings(1, Duration::from_secs(60))).get("broker");
    let status = |status: &u16| Outcome::from_status(*status);
    assert_eq!(breaker.call(async { 503 }, status).await, Ok(503));
    let refused = breaker
        .call(async { panic!("called") }, status)
        .await
        .unwrap_err();
    assert_eq!(refused.dependency, "broker");
    assert!(refused.retry_after <= Duration::from_secs(60) && !refused.retry_after.is_zero());
}

#[tokio::test]
async fn a_recovered_dependency_is_called_again() {
    let breaker = Breakers::new(settings(1, Duration::from_millis(1))).get("broker");
    fail(&breaker);
    let probe = eventually("a probe", async || breaker.permit().ok()).await;
    assert!(breaker.permit().is_err());
    drop(probe);
    breaker.permit().unwrap().report(Outcome::Answered);
    assert_eq!(breaker.state(), State::Closed);
}

#[tokio::test]
async fn each_dependency_has_its_own_breaker_and_settings() {
    let breakers = Breakers::default();
    let broker = breakers.get_with("broker", settings(1, OPEN_FOR));
    fail(&broker);
    assert!(Arc::ptr_eq(&broker, &breakers.get("broker")));
    assert!(breakers.get("broker").permit().is_err() && breakers.get("store").permit().is_ok());
}

#[tokio::test]
async fn transitions_are_published_until_the_process_stops() {
    let db = database().await;
    let breakers = Breakers::new(settings(1, Duration::from_secs(60)));
    let stop = CancellationToken::new();
    let publisher = tokio::spawn(breaker::publish(db.pool(), breakers.clone(), stop.clone()));
    let rows = async || {
        let mut connection = db.pool().acquire().await.unwrap();
        breaker::all(&mut connection).await.unwrap()
    };
    fail(&breakers.get("broker"));
    let row = eventually("an open breaker", async || rows().await.pop()).await;
    assert_eq!(
        (row.dependency.as_str(), row.state.as_str(), row.failures),
        ("broker", "open", 1)
    );
    assert!(row.open_until.unwrap() > row.changed_at);
    let past = "update postrider.breaker set open_until = clock_timestamp() - interval '1 second'";
    sqlx::query(past).execute(&db.pool()).await.unwrap();
    assert_eq!(rows().await[0].state, "half_open", "it waits for a probe");
    stop.cancel();
    publisher.await.unwrap();
    assert_eq!(rows().await, []);
}

#[tokio::test]
async fn a_transition_during_a_database_outage_is_published_afterwards() {
    let db = database().await;
    let rename = |from: &str, to: &str| {
        sqlx::AssertSqlSafe(format!("alter table postrider.{from} rename to {to}"))
    };
    sqlx::raw_sql(rename("breaker", "gone"))
        .execute(&db.pool())
        .await
        .unwrap();
    let breakers = Breakers::new(settings(1, Duration::from_secs(60)));
    let stop = CancellationToken::new();
    let publisher = tokio::spawn(breaker::publish(db.pool(), breakers.clone(), stop.clone()));
    fail(&breakers.get("broker"));
    const FAILED: &str =
        "select xact_rollback > 0 from pg_stat_database where datname = current_database()";
    eventually("a failed write", async || {
        let failed: bool = sqlx::query_scalar(FAILED)
            .fetch_one(&db.pool())
            .await
            .unwrap();
        failed.then_some(())
    })
    .await;
    sqlx::raw_sql(rename("gone", "breaker"))
        .execute(&db.pool())
        .await
        .unwrap();
    eventually("the row", async || {
        let mut connection = db.pool().acquire().await.unwrap();
        breaker::all(&mut connection).await.unwrap().pop()
    })
    .await;
    stop.cancel();
    publisher.await.unwrap();
}
