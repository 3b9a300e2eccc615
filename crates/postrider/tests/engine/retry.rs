//! Retry policies are pure, bounded and predictable.

use std::time::Duration;

use postrider::{
    RetryPolicy,
    retry::{Backoff, MAX_ATTEMPTS, MAX_DELAY, PolicyError},
};
use proptest::prelude::*;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn exponential_delays_double_up_to_the_cap() {
    let policy = RetryPolicy::exponential(secs(300), secs(3600), 10).unwrap();
    let waits: Vec<_> = (1..=6)
        .filter_map(|n| policy.delay(n, 0.5))
        .map(|d| d.as_secs())
        .collect();
    assert_eq!(waits, [300, 600, 1200, 2400, 3600, 3600]);
}

#[test]
fn jitter_spreads_a_delay_and_never_exceeds_the_cap() {
    let policy = RetryPolicy::exponential(secs(100), secs(110), 5).unwrap();
    assert_eq!(policy.delay(1, 0.0), Some(secs(80)));
    assert_eq!(policy.delay(1, 1.0), Some(secs(110)));
    assert_eq!(policy.delay(1, f64::NAN), Some(secs(100)));
    assert_eq!(policy.delay(1, -7.0), Some(secs(80)));
}

#[test]
fn the_last_delay_of_a_table_repeats_and_the_last_attempt_has_none() {
    let policy = RetryPolicy::table([secs(5), secs(10)], 4).unwrap();
    let waits: Vec<_> = (0..=5).map(|n| policy.delay(n, 0.5)).collect();
    assert_eq!(
        waits,
        [
            Some(secs(5)),
            Some(secs(5)),
            Some(secs(10)),
            Some(secs(10)),
            None,
            None
        ]
    );
    assert!(!policy.is_exhausted(3) && policy.is_exhausted(4));
}

#[test]
fn fixed_delays_are_equal_and_none_means_one_attempt() {
    let fixed = RetryPolicy::fixed(secs(7), 3).unwrap();
    assert_eq!(
        [
            fixed.delay(1, 0.1),
            fixed.delay(2, 0.9),
            fixed.delay(3, 0.5)
        ],
        [Some(secs(7)), Some(secs(7)), None]
    );
    assert_eq!(RetryPolicy::none().delay(1, 0.5), None);
    assert_eq!(
        RetryPolicy::new(Backoff::None, 9).unwrap().max_attempts(),
        1
    );
}

#[test]
fn invalid_policies_are_rejected() {
    let exponential = |multiplier, jitter| {
        RetryPolicy::new(
            Backoff::Exponential {
                initial: secs(1),
                multiplier,
                cap: secs(2),
                jitter,
            },
            3,
        )
    };
    assert!(matches!(
        exponential(f64::NAN, 0.0),
        Err(PolicyError::Multiplier(_))
    ));
    assert!(matches!(
        exponential(0.5, 0.0),
        Err(PolicyError::Multiplier(_))
    ));
    assert!(matches!(
        exponential(f64::INFINITY, 0.0),
        Err(PolicyError::Multiplier(_))
    ));
    assert!(matches!(
        exponential(2.0, f64::NAN),
        Err(PolicyError::Jitter(_))
    ));
    assert!(matches!(
        exponential(2.0, -0.1),
        Err(PolicyError::Jitter(_))
    ));
    assert!(matches!(exponential(2.0, 1.1), Err(PolicyError::Jitter(_))));
    assert!(matches!(
        RetryPolicy::exponential(secs(3), secs(2), 3),
        Err(PolicyError::CapBelowInitial { .. })
    ));
    assert!(matches!(
        RetryPolicy::table([], 3),
        Err(PolicyError::EmptyTable)
    ));
    assert!(matches!(
        RetryPolicy::fixed(Duration::MAX, 3),
        Err(PolicyError::TooLong { .. })
    ));
    assert!(matches!(
        RetryPolicy::fixed(secs(1), 0),
        Err(PolicyError::Attempts(0))
    ));
    // The range of a smallint.
    assert!(i16::try_from(MAX_ATTEMPTS).is_ok());
    assert!(RetryPolicy::fixed(secs(1), MAX_ATTEMPTS).is_ok());
    assert!(matches!(
        RetryPolicy::fixed(secs(1), MAX_ATTEMPTS + 1),
        Err(PolicyError::Attempts(_))
    ));
}

#[test]
fn a_policy_reads_from_configuration_and_writes_the_same_form() {
    let text = r#"{"strategy":"exponential","initial_delay":"5m","max_delay":3600,"jitter_pct":0.2,"max_attempts":3}"#;
    let policy: RetryPolicy = serde_json::from_str(text).unwrap();
    assert_eq!(
        policy,
        RetryPolicy::exponential(secs(300), secs(3600), 3).unwrap()
    );
    for policy in [
        policy,
        RetryPolicy::table([secs(1), secs(2)], 4).unwrap(),
        RetryPolicy::none(),
        RetryPolicy::default(),
    ] {
        let written = serde_json::to_string(&policy).unwrap();
        assert_eq!(
            serde_json::from_str::<RetryPolicy>(&written).unwrap(),
            policy,
            "{written}"
        );
    }
}

#[test]
fn invalid_configuration_is_rejected_with_the_reason() {
    let refused = |text: &str| {
        serde_json::from_str::<RetryPolicy>(text)
            .unwrap_err()
            .to_string()
    };
    let text = r#"{"strategy":"fixed","delay":"5s","max_attempts":0}"#;
    assert!(
        refused(text).contains("max_attempts is 0"),
        "{}",
        refused(text)
    );
    let text = r#"{"strategy":"fixed","delay":"5s","max_attempts":1,"delya":1}"#;
    assert!(refused(text).contains("delya"), "{}", refused(text));
    assert!(refused(r#"{"strategy":"fixed","delay":-5,"max_attempts":1}"#).contains("duration"));
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    let duration = || {
        (0..=MAX_DELAY.as_secs(), 0..1_000_000_000_u32)
            .prop_map(|(s, n)| Duration::new(s, n).min(MAX_DELAY))
    };
    let multiplier = prop_oneof![1.0..10.0_f64, 1.0..f64::MAX, Just(1.0)];
    let backoff = prop_oneof![
        (duration(), multiplier, duration(), 0.0..=1.0_f64).prop_map(
            |(a, multiplier, b, jitter)| {
                Backoff::Exponential {
                    initial: a.min(b),
                    multiplier,
                    cap: a.max(b),
                    jitter,
                }
            }
        ),
        prop::collection::vec(duration(), 1..8).prop_map(Backoff::Table),
        duration().prop_map(Backoff::Fixed),
        Just(Backoff::None),
    ];
    (backoff, 1..=MAX_ATTEMPTS).prop_map(|(backoff, max)| RetryPolicy::new(backoff, max).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases()))]

    #[test]
    fn every_delay_is_bounded_and_exists_only_while_attempts_are_left(
        policy in any_policy(), attempt in any::<u32>(), sample in any::<f64>(),
    ) {
        let delay = policy.delay(attempt, sample);
        prop_assert_eq!(delay.is_some(), attempt.max(1) < policy.max_attempts());
        prop_assert!(delay.unwrap_or_default() <= MAX_DELAY);
        prop_assert_eq!(delay, policy.delay(attempt, sample));
    }

    #[test]
    fn without_jitter_delays_never_shrink(policy in any_policy(), attempt in 1..2_000_u32) {
        if matches!(policy.backoff(), Backoff::Table(_)) {
            return Ok(());
        }
        if let (Some(this), Some(next)) = (policy.delay(attempt, 0.5), policy.delay(attempt + 1, 0.5)) {
            prop_assert!(this <= next, "{:?} then {:?}", this, next);
        }
    }
}
