//! No destination gets more than it bears.

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use postrider::limits::{Bucket, Destination, InvalidRate, Limit, Limits, Rate};
use proptest::prelude::*;

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate::new(per_second, burst).unwrap()
}

fn places(n: u32) -> Limit {
    Limit {
        rate: None,
        concurrency: NonZeroU32::new(n),
    }
}

#[test]
fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
    let start = Instant::now();
    let mut bucket = Bucket::new(rate(10.0, 3));
    let answers: Vec<_> = (0..4).map(|_| bucket.take(start)).collect();
    assert_eq!(
        answers,
        [Ok(()), Ok(()), Ok(()), Err(Duration::from_millis(100))]
    );
    assert_eq!(bucket.take(start + Duration::from_millis(100)), Ok(()));
    assert!(
        !bucket.is_full(start + Duration::from_millis(399))
            && bucket.is_full(start + Duration::from_millis(400))
    );
}

#[test]
fn rates_that_can_not_be_kept_are_refused() {
    for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
        assert!(matches!(
            Rate::new(per_second, 1),
            Err(InvalidRate::PerSecond(_))
        ));
    }
    assert_eq!(Rate::new(1.0, 0), Err(InvalidRate::NoBurst));
    assert_eq!(
        serde_json::from_str::<Rate>(r#"{"per_second":5}"#).unwrap(),
        rate(5.0, 1)
    );
    assert!(serde_json::from_str::<Rate>(r#"{"per_second":5,"burts":1}"#).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases()))]

    #[test]
    fn in_any_span_of_time_no_more_goes_than_burst_and_rate_allow(
        per_second in 0.1..1_000.0_f64, burst in 1..20_u32, gaps in prop::collection::vec(0..200_u64, 1..60),
    ) {
        let start = Instant::now();
        let mut bucket = Bucket::new(rate(per_second, burst));
        let mut now = start;
        let mut gone = Vec::new();
        for gap in gaps {
            now += Duration::from_millis(gap);
            if bucket.take(now).is_ok() {
                gone.push(now - start);
            }
        }
        for (i, from) in gone.iter().enumerate() {
            for (j, to) in gone.iter().enumerate().skip(i) {
                let allowed = f64::from(burst) + (*to - *from).as_secs_f64() * per_second + 0.001;
                prop_assert!(((j - i + 1) as f64) <= allowed, "{} calls, {} allowed", j - i + 1, allowed);
            }
        }
    }

    #[test]
    fn who_waits_as_long_as_told_may_go(per_second in 0.001..10_000.0_f64, burst in 1..20_u32, tries in 1..50_u32) {
        let mut now = Instant::now();
        let mut bucket = Bucket::new(rate(per_second, burst));
        for _ in 0..tries {
            if let Err(wait) = bucket.take(now) {
                now += wait;
                prop_assert_eq!(bucket.take(now), Ok(()));
            }
        }
    }
}

#[tokio::test]
async fn no_more_calls_at_once_than_there_are_places() {
    let destination = Destination::new(places(2));
    let (first, _second) = (destination.enter().await, destination.try_enter().unwrap());
    assert!(destination.try_enter().is_err());
    drop(first);
    assert!(destination.try_enter().is_ok());
}

#[tokio::test]
async fn a_wait_that_is_cancelled_takes_nothing_away() {
    let destination = Destination::new(places(1));
    let held = destination.enter().await;
    {
        let waiting = destination.enter();
        tokio::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    }
    drop(held);
    assert!(destination.try_enter().is_ok());
}

#[tokio::test]
async fn who_waits_for_the_rate_gets_through() {
    let limit = Limit {
        rate: Some(rate(1_000.0, 1)),
        concurrency: None,
    };
    let destination = Destination::new(limit);
    for _ in 0..20 {
        let _entry = destination.enter().await;
    }
    let slow = Destination::new(Limit {
        rate: Some(rate(0.01, 1)),
        concurrency: None,
    });
    let _entry = slow.enter().await;
    assert!(slow.try_enter().unwrap_err().retry_after > Duration::from_secs(50));
}

#[tokio::test]
async fn destinations_do_not_share_and_those_in_use_are_never_forgotten() {
    let limits = Limits::new(places(1));
    let broker = limits.destination("broker");
    let _entry = broker.enter().await;
    drop(broker);
    for n in 0..5_000 {
        assert!(limits.destination(&format!("host-{n}")).try_enter().is_ok());
    }
    assert!(limits.destination("broker").try_enter().is_err());
    assert!(Arc::ptr_eq(
        &limits.destination("a"),
        &limits.destination("a")
    ));
}
