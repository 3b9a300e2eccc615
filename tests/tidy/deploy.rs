//! The files in `deploy/` agree with the program and its documents.

use std::collections::BTreeSet;

use postrider_cli::alerts::{RULES, prometheus};
use serde_json::Value;

use crate::read;

/// Every name on the metrics page; a test of the program checks that page.
fn metrics() -> BTreeSet<String> {
    let page = read("docs/operations/metrics.md");
    page.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn prometheus_rules_match_the_rules_of_the_program() {
    assert!(
        read("deploy/alerts.yml") == prometheus(RULES),
        "deploy/alerts.yml is out of date: run `make alerts` and review the diff"
    );
}

#[test]
fn alerts_use_existing_metrics_and_are_explained_in_the_guide() {
    let (metrics, guide) = (metrics(), read("docs/operations/guide.md"));
    let mut sections = Vec::new();
    for rule in RULES {
        assert!(
            metrics.contains(rule.metric),
            "{}: no such metric",
            rule.name
        );
        let heading = format!("\n### {}\n", rule.name);
        let section = guide.split_once(&heading).map(|(_, rest)| rest);
        let section = section.unwrap_or_else(|| panic!("the guide lacks {}", rule.name));
        let text = section.split("\n#").next().unwrap();
        assert!(text.trim().len() > 80, "{}: say what to do", rule.name);
        sections.push(rule.name);
    }
    let alerts = guide.split_once("\n## Alerts\n").unwrap().1;
    let alerts = alerts.split("\n## ").next().unwrap();
    let found: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    assert_eq!(
        found, sections,
        "one section per alert, in the order of the rules"
    );
}

#[test]
fn dashboard_uses_existing_metrics() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana.json")).unwrap();
    let metrics = metrics();
    let mut shown = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let names = expression
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .filter(|word| word.contains('_'));
            for name in names.filter(|name| !["histogram_quantile", "error_code"].contains(name)) {
                let whole = metrics.contains(name);
                let part = ["_bucket", "_sum", "_count"]
                    .iter()
                    .filter_map(|end| name.strip_suffix(end))
                    .any(|name| metrics.contains(name));
                assert!(whole || part, "{name} in {expression}");
                shown.insert(name.to_owned());
            }
        }
    }
    assert!(shown.len() > 40, "{shown:?}");
}
