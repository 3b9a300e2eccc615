//! No destination gets more calls than its limit allows.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use postrider::limits::{Bucket, InvalidRate, Limit, Limiter, Rate};
use proptest::prelude::*;

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate::new(per_second, burst).unwrap()
}

fn concurrency(n: u32) -> Limit {
    Limit {
        rate: None,
        concurrency: NonZeroU32::new(n),
    }
}

#[test]
fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
    let start = Instant::now();
    let mut bucket = Bucket::new(rate(10.0, 3));
    let answers: Vec<_> = (0..4).map(|_| bucket.take(start)).collect();
    assert_eq!(
        answers,
        [Ok(()), Ok(()), Ok(()), Err(Duration::from_millis(100))]
    );
    assert_eq!(bucket.take(start + Duration::from_millis(100)), Ok(()));
}

#[test]
fn invalid_rates_are_rejected() {
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
    fn no_span_of_time_admits_more_than_burst_and_rate(
        per_second in 0.1..1_000.0_f64, burst in 1..20_u32, gaps in prop::collection::vec(0..200_u64, 1..60),
    ) {
        let start = Instant::now();
        let mut bucket = Bucket::new(rate(per_second, burst));
        let mut now = start;
        let mut admitted = Vec::new();
        for gap in gaps {
            now += Duration::from_millis(gap);
            if bucket.take(now).is_ok() {
                admitted.push(now - start);
            }
        }
        for (i, from) in admitted.iter().enumerate() {
            for (j, to) in admitted.iter().enumerate().skip(i) {
                let allowed = f64::from(burst) + (*to - *from).as_secs_f64() * per_second + 0.001;
                prop_assert!(((j - i + 1) as f64) <= allowed, "{} calls, {} allowed", j - i + 1, allowed);
            }
        }
    }

    #[test]
    fn a_caller_that_waits_as_long_as_asked_is_admitted(per_second in 0.001..10_000.0_f64, burst in 1..20_u32, tries in 1..50_u32) {
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
async fn concurrent_calls_never_exceed_the_limit() {
    let limiter = Limiter::new(concurrency(2));
    let (first, _second) = (limiter.acquire().await, limiter.acquire().await);
    assert!(limiter.acquire().now_or_never().is_none());
    drop(first);
    assert!(limiter.acquire().now_or_never().is_some());
}

#[tokio::test]
async fn a_cancelled_wait_consumes_nothing() {
    let limiter = Limiter::new(concurrency(1));
    let held = limiter.acquire().await;
    {
        let waiting = limiter.acquire();
        tokio::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    }
    drop(held);
    assert!(limiter.acquire().now_or_never().is_some());
}

#[tokio::test]
async fn callers_that_wait_for_the_rate_get_through() {
    let limited = |per_second| {
        Limiter::new(Limit {
            rate: Some(rate(per_second, 1)),
            concurrency: None,
        })
    };
    let fast = limited(1_000.0);
    for _ in 0..20 {
        let _permit = fast.acquire().await;
    }
    let slow = limited(0.01);
    let _permit = slow.acquire().await;
    assert!(slow.acquire().now_or_never().is_none());
}
