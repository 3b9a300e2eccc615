//! The rules mean the same to both judges: Prometheus, by its own tool, and the program.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use postrider_cli::alerts::{Open, RULES, Rule, Step, holding, prometheus, step};
use postrider_inspect::gauges::Gauge;
use serde_json::json;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::alert_cases::{CASES, Case};

fn ops() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn rule(case: &Case) -> &'static Rule {
    RULES.iter().find(|rule| rule.name == case.alert).unwrap()
}

#[test]
fn every_rule_has_a_case_and_every_case_a_rule() {
    let rules: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    let cases: Vec<&str> = CASES.iter().map(|case| case.alert).collect();
    assert_eq!(rules, cases);
}

/// Runs the program's judge over the minutes; says in which it fires.
fn fires_inside(case: &Case) -> Vec<u64> {
    let rules = [*rule(case)];
    let mut open: BTreeMap<Uuid, Open> = BTreeMap::new();
    let mut fired = Vec::new();
    for minute in 0..case.over() + 5 {
        let now = OffsetDateTime::UNIX_EPOCH + Duration::minutes(i64::try_from(minute).unwrap());
        let reading = case.at(minute).map(|value| Gauge {
            name: case.metric,
            label: case.label.map(|(name, which)| (name, which.to_owned())),
            value,
        });
        let readings: Vec<Gauge> = reading.into_iter().collect();
        let known: Vec<Open> = open.values().cloned().collect();
        for step in step(&known, holding(&rules, &readings, now), now) {
            match step {
                Step::Begin { subject, fires, .. } => {
                    let id = Uuid::now_v7();
                    let rule = case.alert.to_owned();
                    let period = Open {
                        id,
                        rule,
                        subject,
                        since: now,
                        fired: fires,
                    };
                    open.insert(id, period);
                }
                Step::Fire { id, .. } => open.get_mut(&id).unwrap().fired = true,
                Step::Resolve { id } | Step::Forget { id } => drop(open.remove(&id)),
                Step::Keep { .. } => {}
            }
        }
        assert!(open.len() <= 1, "one period at a time");
        if open.values().any(|period| period.fired) {
            fired.push(minute);
        }
    }
    fired
}

#[test]
fn the_program_fires_when_the_cases_say() {
    for case in CASES.iter().filter(|case| rule(case).look.inside()) {
        let expected: Vec<u64> = (case.fires..case.over()).collect();
        assert_eq!(fires_inside(case), expected, "{}", case.alert);
    }
}

/// The cases as a test file for promtool.
fn promtool_tests() -> String {
    let mut file = "# Written by `make alerts` from tests/program/alert_cases.rs; `promtool test rules` runs it.\n\
                    rule_files:\n  - alerts.yml\nevaluation_interval: 1m\ntests:\n"
        .to_owned();
    for case in CASES {
        let labels = case
            .label
            .map_or_else(String::new, |(name, which)| format!("{{{name}={which:?}}}"));
        let values: Vec<String> = (0..case.over() + 5)
            .map(|minute| {
                case.at(minute)
                    .map_or_else(|| "_".to_owned(), |value| value.to_string())
            })
            .collect();
        let _ = write!(
            file,
            "  - interval: 1m\n    input_series:\n      - series: {}\n        values: {}\n    alert_rule_test:\n",
            json!(format!("{}{labels}", case.metric)),
            json!(values.join(" ")),
        );
        let quiet = [case.fires - 1, case.over()];
        for minute in [quiet[0], case.fires, case.over() - 1, quiet[1]] {
            let _ = write!(
                file,
                "      - eval_time: {minute}m\n        alertname: {}\n",
                case.alert
            );
            if !quiet.contains(&minute) {
                file.push_str(&expected(case));
            }
        }
    }
    file
}

fn expected(case: &Case) -> String {
    let rule = rule(case);
    let mut labels = BTreeMap::from([("severity", case.severity)]);
    let label = case.label.filter(|(name, _)| rule.by == Some(*name));
    labels.extend(label);
    let subject = label.map_or("", |(_, which)| which);
    format!(
        "        exp_alerts:\n          - exp_labels: {}\n            exp_annotations: {}\n",
        json!(labels),
        json!({ "summary": rule.about(subject), "description": rule.advice }),
    )
}

#[test]
fn prometheus_fires_when_the_cases_say() {
    let path = ops().join("alerts.test.yml");
    let tests = promtool_tests();
    if std::env::var_os("WRITE").is_some() {
        std::fs::write(&path, &tests).unwrap();
        std::fs::write(ops().join("alerts.yml"), prometheus(RULES)).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        tests,
        "deploy/alerts.test.yml is out of date: run `make alerts`"
    );
    let promtool = Command::new("promtool")
        .args(["test", "rules", "alerts.test.yml"])
        .current_dir(ops())
        .output();
    let output = match promtool {
        Err(_) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: promtool is not installed; `make setup` does it");
            return;
        }
        other => other.expect("promtool is installed by scripts/setup"),
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
