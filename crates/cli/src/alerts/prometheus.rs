//! The rules in Prometheus' words.

use std::{fmt::Write as _, time::Duration};

use serde_json::json;

use super::rule::{Look, Rule, Wrong};

/// Whoever reads the file should not edit it.
const HEAD: &str = "# Written by `make alerts` from crates/cli/src/alerts/rules.rs, which the program judges by as well.
# docs/operations/guide.md says what to do for each.
groups:
";

/// The rule file.
#[must_use]
pub fn prometheus(rules: &[Rule]) -> String {
    let mut file = HEAD.to_owned();
    let mut group = "";
    for rule in rules {
        if rule.group != group {
            group = rule.group;
            let _ = write!(file, "  - name: {group}\n    rules:\n");
        }
        file.push_str(&one(rule));
    }
    file
}

fn one(rule: &Rule) -> String {
    let subject = rule
        .by
        .map_or_else(String::new, |by| format!("{{{{ $labels.{by} }}}}"));
    let mut text = format!(
        "      - alert: {}\n        expr: {}\n",
        rule.name,
        json!(expression(rule))
    );
    if !rule.hold.is_zero() {
        let _ = writeln!(text, "        for: {}", span(rule.hold));
    }
    let _ = write!(
        text,
        "        labels:\n          severity: {}\n        annotations:\n          summary: {}\n          description: {}\n",
        rule.severity.as_str(),
        // A string of JSON is one of YAML.
        json!(rule.about(&subject)),
        json!(rule.advice),
    );
    text
}

/// The condition as an expression.
#[must_use]
pub fn expression(rule: &Rule) -> String {
    let only = rule.only.map_or_else(String::new, |(name, which)| {
        format!("{{{name}=\"{which}\"}}")
    });
    let metric = format!("{}{only}", rule.metric);
    let by = rule
        .by
        .map_or_else(String::new, |label| format!(" by ({label}) "));
    let value = match rule.look {
        Look::Value => format!("max{by}({metric})"),
        Look::Age => format!("time() - max{by}({metric})"),
        Look::Worst => format!("min{by}({metric})"),
        Look::Absent => return format!("absent({metric})"),
    };
    match rule.wrong {
        Wrong::Above(limit) => format!("{value} > {limit}"),
        Wrong::Below(limit) => format!("{value} < {limit}"),
    }
}

fn span(hold: Duration) -> String {
    match hold.as_secs() {
        seconds if seconds.is_multiple_of(3_600) => format!("{}h", seconds / 3_600),
        seconds if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}
